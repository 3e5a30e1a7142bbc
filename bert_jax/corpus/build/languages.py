"""Codes of languages: the library that splits sentences uses the rules of English for one that it does not know."""

import re

from bert_jax.corpus.build.encoding import NO_LANGUAGE
from bert_jax.errors import UserError

# All codes of two letters in ISO 639.
_TWO_LETTERS = """
aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es et
eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk
kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny
oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti
tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
# Country -> language: codes that are often mistaken for each other.
_COUNTRIES = {"cn": "zh", "cz": "cs", "dk": "da", "gr": "el", "ir": "fa", "jp": "ja", "ua": "uk", "vn": "vi"}


def check_language(code: str) -> None:
    """Raise UserError for what cannot be the code of a language, with what may be meant."""
    letters = code.partition("-")[0]
    is_code = re.fullmatch("[a-z]{2,3}(-[a-z]+)*", code) and (len(letters) == 3 or letters in _TWO_LETTERS.split())
    if not is_code and code != NO_LANGUAGE:
        meant = f"the language of this country is {_COUNTRIES[code]}; " if code in _COUNTRIES else ""
        raise UserError(
            f"--language {code}: {meant}give a code such as de, ko or zh, as Wikipedia uses, or none for text without "
            "sentences"
        )
