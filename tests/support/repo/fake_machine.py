"""A machine for `./dev` made of scripts: a checkout, a PATH, and a log of the programs started.

No script reaches the real interpreter, package manager or network: PATH holds links to a few plain
tools, and the scripts below.
"""

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

_PLAIN_TOOLS = (
    *("awk", "basename", "cat", "chmod", "cksum", "cp", "date", "dirname", "env", "find", "flock"),
    *("grep", "head", "id", "ls", "mkdir", "mv", "rm", "sed", "sleep", "sh", "tail", "touch"),
    *("tr", "true"),
)

# Its base is what the probe of `./dev` prints; in an environment the same script is bin/python.
_PYTHON = r"""#!/bin/sh
printf 'python %s\n' "$*" | head -c 300 | tr '\n' ' ' >>"@LOG@"
echo >>"@LOG@"
case "$1 $2" in
"-c "*_base_executable*) echo "@VERSION@ @SUPPORTED@ @BASE@" ;;
"-c "*ensurepip*) [ -e "@HOME@/has-venv" ] ;;
"-c "*klog-roots.pth*) : ;;
"-m venv")
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    [ ! -e "@HOME@/venv-fails" ] || exit 1
    echo "#!$3/bin/python" >"$3/bin/pip"
    ;;
"-m pip")
    here=$(dirname -- "$0")
    [ -e "$here/pip" ] || exit 1
    [ "$3" = install ] || exit 0
    while [ -e "@HOME@/hold-pip" ]; do sleep 0.02; done
    [ ! -e "@HOME@/pip-fails" ] || { echo "no such package"; exit 1; }
    printf '#!/bin/sh\necho "klog $$ $*"\n' >"$here/klog"
    chmod +x "$here/klog"
    ;;
"-m pyspark_klog.warm" | "-m klog_broker.warm") : ;;
*)
    echo "in $(pwd)"
    for argument in "$@"; do echo "argument $argument"; done
    env | grep -E '^(PATH|PY|SPARK|JAVA_HOME|NUMBA)' || :
    exit "${FAKE_EXIT:-0}"
    ;;
esac
"""

_JAVA = """#!/bin/sh
echo "java $*" >>"@LOG@"
cat >&2 <<'END'
    java.home = @JAVA@
    java.specification.version = @VERSION@
END
"""

_APT_GET = """#!/bin/sh
echo "apt-get $*" >>"@LOG@"
case "$*" in
*install*venv*) touch "@HOME@/has-venv" ;;
"download "*) for name in $2; do touch "$name.deb"; done ;;
esac
"""

# A package of RabbitMQ and of Erlang: the launcher names the folder of an installed Erlang.
_DPKG_DEB = r"""#!/bin/sh
echo "dpkg-deb $*" >>"@LOG@"
mkdir -p "$3/usr/lib/erlang/bin" "$3/usr/lib/rabbitmq/lib/rabbitmq_server-3.9"
printf '#!/bin/sh\n    ROOTDIR=/usr/lib/erlang\necho "$ROOTDIR"\n' >"$3/usr/lib/erlang/bin/erl"
"""

_MAVEN = r"""#!/bin/sh
echo "mvn $*" >>"@LOG@"
case "$*" in
*" -U "*) : ;;
*) [ ! -e "@HOME@/first-look-up-fails" ] || exit 1 ;;
esac
if [ -e "@HOME@/no-activemq" ] && grep -q activemq pom.xml; then exit 1; fi
for name in $(sed -n 's/.*<artifactId>\([^<]*\)<.*/\1/p' pom.xml); do touch "new/$name.jar"; done
"""


@dataclass
class Machine:
    """A checkout (by default in a folder with a space in its name) and a fake PATH."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    place: str = "a path"

    @property
    def checkout(self) -> Path:
        """The folder that `dev` lies in."""
        return self.home / self.place / "klog"

    @property
    def bin(self) -> Path:
        """The only folder on PATH."""
        return self.home / "bin"

    def dev(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs `./dev`, to its end."""
        with self.start(*arguments, cwd=cwd) as process:
            output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def start(self, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Starts `./dev` under dash where there is one, since that is the strictest sh."""
        return subprocess.Popen(
            [shutil.which("dash") or "/bin/sh", str(self.checkout / "dev"), *arguments],
            cwd=cwd or self.checkout,
            env={"PATH": str(self.bin), "HOME": str(self.home), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def started(self) -> list[str]:
        """Return the calls of the fakes since the last call of this method, a line each."""
        log = self.home / "log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.strip() for line in lines]

    def flag(self, name: str, value: bool = True) -> None:
        """Sets a switch of the fakes: has-venv, venv-fails, pip-fails, hold-pip ..."""
        if value:
            (self.home / name).touch()
        else:
            (self.home / name).unlink(missing_ok=True)

    def fake(self, name: str, text: str, **values: str) -> Path:
        """Puts a script onto PATH (or, with a slash in the name, under the machine's home)."""
        path = self.home / name if "/" in name else self.bin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # it may be a link to the real tool, which must stay as it is
        values |= {"HOME": str(self.home), "LOG": str(self.home / "log")}
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def add_python(self, name: str = "python3.11", version: str = "3.11") -> Path:
        """An interpreter of ``version`` on PATH."""
        supported = str((3, 11) <= tuple(map(int, version.split("."))) < (3, 15))
        base = str(self.bin / name)
        return self.fake(name, _PYTHON, VERSION=version, SUPPORTED=supported, BASE=base)

    def add_java(self, home: str, version: str, *, on_path: bool = True) -> Path:
        """A Java home under the machine's own; on PATH too if asked."""
        folder = self.home / home
        self.fake(f"{home}/bin/java", _JAVA, JAVA=str(folder), VERSION=version)
        if on_path:
            (self.bin / "java").symlink_to(folder / "bin" / "java")
        return folder

    def add_apt(self, *, packages: str = "python3.11-venv", root: bool = True) -> None:
        """Debian's package manager, whose lists know ``packages``; the caller may be root."""
        self.fake("apt-get", _APT_GET)
        self.fake("apt-cache", f'#!/bin/sh\ncase " {packages} " in *" $2 "*) echo "$2" ;; esac\n')
        self.fake("dpkg", "#!/bin/sh\nexit 0\n")
        self.fake("id", f"#!/bin/sh\necho {0 if root else 1000}\n")

    def add_unpacker(self) -> None:
        """Add a dpkg-deb that unpacks the same files from every package."""
        self.fake("dpkg-deb", _DPKG_DEB)

    def add_maven(self) -> None:
        """Add a Maven that puts a jar for each artifact of pom.xml into its output folder."""
        self.fake("mvn", _MAVEN)


def make_machine(home: Path, place: str = "a path") -> Machine:
    """A machine with a checkout and plain tools, and neither Python, Java nor a package manager."""
    machine = Machine(home, place=place)
    machine.bin.mkdir(parents=True)
    for tool in _PLAIN_TOOLS:
        found = shutil.which(tool)
        if found is not None:
            (machine.bin / tool).symlink_to(found)
    machine.fake("df", "#!/bin/sh\necho header\necho disk 1 1 \"$(cat '@HOME@/free-kib')\" 1% /\n")
    (home / "free-kib").write_text(str(9 * 1024 * 1024), encoding="utf-8")
    machine.flag("has-venv")
    for name in (
        "pyspark_klog/records/kernels.py",
        "pyspark_klog/warm.py",
        "broker/klog_broker/warm.py",
    ):
        source = machine.checkout / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("", encoding="utf-8")
    for name in ("dev", "setup.py", "constraints.txt", "constraints-oldest.txt"):
        shutil.copy(ROOT / name, machine.checkout / name)
    return machine
