"""Check of language codes; for the name of a language or a code of three letters, the two-letter code is suggested."""

import re

from bert_jax.errors import UserError, nearest

NO_LANGUAGE = "none"  # each line is an unchanged sentence, for text such as code, logs and proteins
# Characters, as ranges of a regular expression, of scripts that do not separate words: Thai, Lao, Tibetan, Burmese,
# Khmer, kana, Han.
UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# All codes of two letters in ISO 639-1, and sh.
_TWO_LETTERS = """
aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es et
eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk
kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny
oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti
tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
# Code of two letters, code of three letters, English name.
_NAMES = """
af afr afrikaans, am amh amharic, ar ara arabic, az aze azerbaijani, be bel belarusian, bg bul bulgarian,
bn ben bengali, bs bos bosnian, ca cat catalan, cs ces czech, cy cym welsh, da dan danish, de deu german, el ell greek,
en eng english, eo epo esperanto, es spa spanish, et est estonian, eu eus basque, fa fas persian, fi fin finnish,
fo fao faroese, fr fra french, ga gle irish, gl glg galician, gu guj gujarati, ha hau hausa, he heb hebrew,
hi hin hindi, hr hrv croatian, hu hun hungarian, hy hye armenian, id ind indonesian, ig ibo igbo, is isl icelandic,
it ita italian, ja jpn japanese, ka kat georgian, kk kaz kazakh, km khm khmer, kn kan kannada, ko kor korean,
la lat latin, lo lao lao, lt lit lithuanian, lv lav latvian, mk mkd macedonian, ml mal malayalam, mn mon mongolian,
mr mar marathi, ms msa malay, mt mlt maltese, my mya burmese, ne nep nepali, nl nld dutch, no nor norwegian,
pa pan punjabi, pl pol polish, ps pus pashto, pt por portuguese, ro ron romanian, ru rus russian, si sin sinhala,
sk slk slovak, sl slv slovenian, so som somali, sq sqi albanian, sr srp serbian, sv swe swedish, sw swa swahili,
ta tam tamil, te tel telugu, th tha thai, tr tur turkish, uk ukr ukrainian, ur urd urdu, uz uzb uzbek,
vi vie vietnamese, yo yor yoruba, zh zho chinese, zu zul zulu
"""
_CODES = {word: row.split()[0] for row in _NAMES.split(",") for word in row.split()[1:]}
# Country -> language: codes that are often mistaken for each other.
_COUNTRIES = {"cn": "zh", "cz": "cs", "dk": "da", "gr": "el", "ir": "fa", "jp": "ja", "ua": "uk", "vn": "vi"}


def two_letter_code(code: str) -> str:
    """Return the two-letter code of the language with this three-letter code; '' if the table lacks the language."""
    letters = code.partition("-")[0]
    return _CODES.get(letters, "") if len(letters) == 3 else ""


def check_language(code: str) -> None:
    """Raise UserError, with a suggestion, for a text that is not the code of a language."""
    letters = code.partition("-")[0]
    is_code = re.fullmatch("[a-z]{2,3}(-[a-z]+)*", code) and (len(letters) == 3 or letters in _TWO_LETTERS.split())
    if is_code or code == NO_LANGUAGE:
        return
    word = code.lower()
    if word in _COUNTRIES:
        meant = f"the language of this country is {_COUNTRIES[word]}; "
    else:
        name = nearest(word.partition("_")[0].partition("-")[0], [*_CODES, *_TWO_LETTERS.split()], cutoff=0.8)
        meant = f"did you mean '{_CODES.get(name, name)}'? " if name else ""
    raise UserError(
        f"--language {code}: {meant}give a code such as de, ko or zh, as Wikipedia uses, or none for text without "
        "sentences"
    )
