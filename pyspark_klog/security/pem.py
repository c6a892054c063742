"""PEM as Kafka's Java client takes it: also on one line, with blanks for line ends. Pure."""

import re

_BLOCK = re.compile(
    r"-+\s*BEGIN\s+([A-Z0-9 ]+?)\s*-+(.*?)-+\s*END\s+\1\s*-+", re.DOTALL | re.IGNORECASE
)
_LINE = 64


def pem_blocks(text: str) -> list[tuple[str, str]]:
    """Label (``CERTIFICATE``, ``ENCRYPTED PRIVATE KEY``) and whole block of each part of a text."""
    found = []
    for match in _BLOCK.finditer(text.replace("\\n", "\n")):
        label, body = match[1].upper(), match[2]
        if ":" in body:
            # Headers before the base64 (an old way to encrypt keys) stand on lines of their own.
            body = body.strip()
        else:
            packed = "".join(body.split())
            body = "\n".join(packed[at : at + _LINE] for at in range(0, len(packed), _LINE))
        found.append((label, f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"))
    return found


def certificates_of(text: str) -> str:
    """The certificates of a text, in order; empty if it has none."""
    labels = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")
    return "".join(block for label, block in pem_blocks(text) if label in labels)


def key_of(text: str) -> str:
    """The first private key of a text; empty if it has none."""
    blocks = pem_blocks(text)
    return next((block for label, block in blocks if label.endswith("PRIVATE KEY")), "")
