"""Rules that change texts: encoding errors are repaired, and personal data is masked."""

import functools
import ipaddress
import re
from collections.abc import Callable

from bert_jax.errors import needs_packages

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Thai, Lao, Tibetan, Burmese, Khmer, kana, Han and Hangul: no space stands between a word and an address.
_UNSPACED = r"\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
_WORD = rf"[^\W{_UNSPACED}]"
_MARKS = r"[.!#$%&'*+/=?^`{|}~-]"
# Patterns as text: `re` compiles each at its first use, since most preparations mask nothing.
# An e-mail address has a local part of at most 64 characters (RFC 5321), and a domain of labels. The lengths are
# bounded, so that a search takes linear time.
_EMAIL = (
    rf"(?<!{_WORD})(?<!{_MARKS}){_WORD}(?:{_WORD}|{_MARKS}){{0,63}}@"
    rf"(?:[\w-]{{1,63}}\.){{1,8}}[^\W\d_{_UNSPACED}]{{2,63}}(?!{_WORD})"
)
# `_masked_address` checks the character before the address, since `re` finds a pattern ten times faster if the pattern
# begins with a set of characters.
_IPV4 = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}" rf"(?!{_WORD}|\.[0-9])"
_IPV6 = rf"(?<!{_WORD})(?<![:.])[0-9A-Fa-f:]{{2,39}}(?!{_WORD}|:)"
_INSIDE = re.compile(rf"{_WORD}|\.")  # after such a character, an address is a part of a longer word
_MIN_COLONS = 7  # number of colons in an address of IPv6 without `::`


def repair_encoding(text: str) -> str:
    """Repair UTF-8 text that was decoded as Latin-1, Windows-1252 or a similar encoding, line by line with ftfy."""
    if text.isascii():
        return text
    fix = _load_ftfy_fixer()
    return "\n".join(line if line.isascii() else fix(line) for line in text.split("\n"))


@functools.cache
def _load_ftfy_fixer() -> Callable[[str], str]:
    """Return `ftfy.fix_encoding`; raise UserError if the package is missing."""
    with needs_packages("[repair_encoding]", "ftfy"):
        import ftfy
    fix: Callable[[str], str] = ftfy.fix_encoding
    return fix


def check_ftfy_installed(**_: object) -> None:
    """Raise UserError if the package ftfy is missing."""
    _load_ftfy_fixer()


def mask_emails(text: str, *, replacement: str = "email@example.com") -> str:
    """Return the text with `replacement` in place of each e-mail address."""
    return re.sub(_EMAIL, lambda _: replacement, text) if "@" in text else text


def mask_ip_addresses(
    text: str, *, ipv4: str = "192.0.2.1", ipv6: str = "2001:db8::1", public_only: bool = True
) -> str:
    """Replace IP addresses in a text by `ipv4` or `ipv6`; both defaults are addresses reserved for documentation.

    With `public_only`, private, local and reserved addresses stay, since they belong to no person. Program code such as
    `a::b`, which looks like a reserved address, is not changed.
    """
    text = re.sub(_IPV4, lambda match: _masked_address(match, ipaddress.IPv4Address, ipv4, public_only), text)
    if "::" in text or text.count(":") >= _MIN_COLONS:
        text = re.sub(_IPV6, lambda match: _masked_address(match, ipaddress.IPv6Address, ipv6, public_only), text)
    return text


def _masked_address(match: re.Match[str], kind: Callable[[str], _Address], replacement: str, public_only: bool) -> str:
    """Return the replacement of a matched text; return the text if the text is no IP address or must stay."""
    if match.start() and _INSIDE.match(match.string, match.start() - 1):
        return match[0]
    try:
        address = kind(match[0])
    except ValueError:  # the match is no address, such as 999.1.1.1 or 10:30
        return match[0]
    return match[0] if public_only and not _is_public(address) else replacement


def _is_public(address: _Address) -> bool:
    """Return whether an address belongs to the public internet; among IPv6 addresses, only 2000::/3 is public."""
    return address.is_global and (address.version == 4 or int(address) >> 125 == 1)
