"""Read PEM text in the forms that Kafka's Java client accepts. No I/O.

PEM text may stand on one line, with blanks in place of line ends.
"""

import re

_BLOCK = re.compile(
    r"-+\s*BEGIN\s+([A-Z0-9 ]+?)\s*-+(.*?)-+\s*END\s+\1\s*-+", re.DOTALL | re.IGNORECASE
)
_LINE = 64


def pem_blocks(text: str) -> list[tuple[str, str]]:
    """Return the label and the normalized text of each PEM block in ``text``.

    A label is, for example, ``CERTIFICATE`` or ``ENCRYPTED PRIVATE KEY``.
    """
    found = []
    for match in _BLOCK.finditer(text.replace("\\n", "\n")):
        label, body = match[1].upper(), match[2]
        if ":" in body:
            # Encrypted keys in OpenSSL's traditional PEM format have header lines (``Proc-Type:
            # ...``) before the base64: keep the lines.
            body = body.strip()
        else:
            packed = "".join(body.split())
            body = "\n".join(packed[at : at + _LINE] for at in range(0, len(packed), _LINE))
        found.append((label, f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"))
    return found


def certificates_of(text: str) -> str:
    """Return all certificates in ``text``, in order, as PEM; empty if the text has none."""
    labels = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")
    return "".join(block for label, block in pem_blocks(text) if label in labels)


def key_of(text: str) -> str:
    """Return the first private key in ``text``, as PEM; empty if the text has none."""
    blocks = pem_blocks(text)
    return next((block for label, block in blocks if label.endswith("PRIVATE KEY")), "")
