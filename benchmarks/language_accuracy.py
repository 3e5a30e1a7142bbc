"""Measure the accuracy of the cleaning rule `language` for each language of Tatoeba's sentences.

    python benchmarks/language_accuracy.py --sentences tatoeba-v1.tar.gz

The archive has files tatoeba.LANGUAGE-eng.LANGUAGE of up to 1,000 sentences (ISO 639-3). The language of each sentence
is identified twice: from the sentence alone, and from a document of 500 characters of neighboring sentences. An
identified language is correct if its code is the code that a recipe has in `keep`; the probability of the language does
not matter. `kept` is the fraction of the documents that the rule keeps at the threshold of 0.65.
"""

import argparse
import tarfile
import time

DOCUMENT_CHARACTERS = 500
# ISO 639-3, as Tatoeba names languages -> the codes of the rule that are right.
# fmt: off
CODES = {
    "afr": "af", "amh": "am", "ara": "ar,arz,ary", "arz": "arz,ar", "aze": "az", "bel": "be", "ben": "bn",
    "bos": "bs", "bre": "br", "bul": "bg", "cat": "ca", "ces": "cs", "cmn": "zh", "cym": "cy", "dan": "da",
    "deu": "de", "ell": "el", "eng": "en", "epo": "eo", "est": "et", "eus": "eu", "fao": "fo", "fin": "fi",
    "fra": "fr", "fry": "fy", "gla": "gd", "gle": "ga", "glg": "gl", "heb": "he", "hin": "hi", "hrv": "hr",
    "hun": "hu", "hye": "hy", "ind": "id", "isl": "is", "ita": "it", "jav": "jv", "jpn": "ja", "kab": "kab",
    "kat": "ka", "kaz": "kk", "khm": "km", "kor": "ko", "kur": "ku", "lat": "la", "lit": "lt", "lvs": "lv",
    "mal": "ml", "mar": "mr", "mkd": "mk", "mon": "mn", "nld": "nl", "nno": "nn", "nob": "no", "oci": "oc",
    "pes": "fa", "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "slk": "sk", "slv": "sl", "spa": "es",
    "sqi": "sq", "srp": "sr", "swe": "sv", "swh": "sw", "tam": "ta", "tat": "tt", "tel": "te", "tgl": "tl",
    "tha": "th", "tuk": "tk", "tur": "tr", "uig": "ug", "ukr": "uk", "urd": "ur", "uzb": "uz", "vie": "vi",
    "wuu": "wuu", "xho": "xh", "yue": "yue", "zsm": "ms",
}
# fmt: on


def main() -> None:
    """Measure the accuracy of every language, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sentences", required=True, help="archive of Tatoeba's sentences")
    arguments.add_argument("--most", type=int, default=300, help="sentences and documents of a language (default: 300)")
    args = arguments.parse_args()

    from bert_jax.corpus.build.cleaning.language import identify_language, remove_other_languages

    rows: list[tuple[str, float, float, float]] = []
    unknown: list[str] = []
    characters, begin = 0, time.process_time()
    for code, sentences in read_sentences(args.sentences):
        if code not in CODES:
            unknown.append(code)
            continue
        right = CODES[code].split(",")
        documents = join(sentences)[: args.most]
        sentences = sentences[: args.most]
        in_sentences = sum(identify_language(text, DOCUMENT_CHARACTERS)[0] in right for text in sentences) / len(
            sentences
        )
        in_documents = sum(identify_language(text, DOCUMENT_CHARACTERS)[0] in right for text in documents) / len(
            documents
        )
        kept_fraction = sum(remove_other_languages(text, keep=right) == text for text in documents) / len(documents)
        rows.append((code, in_sentences, in_documents, kept_fraction))
        characters += sum(map(len, sentences)) + 2 * sum(map(len, documents))
    print("| language | code | sentences | documents | kept |\n| --- | --- | --- | --- | --- |")
    for code, *fractions in sorted(rows, key=lambda row: row[2]):
        print(f"| {code} | {CODES[code]} | {' | '.join(f'{fraction:.1%}' for fraction in fractions)} |")
    columns = [[row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]]
    means = [sum(column) / len(rows) for column in columns]
    print(f"| mean of {len(rows)} | | {' | '.join(f'{mean:.1%}' for mean in means)} |")
    if unknown:
        print(f"not known to the rule: {', '.join(unknown)}")
    print(f"{characters / 1e6 / (time.process_time() - begin):.2f} million characters per CPU second")


def read_sentences(path: str) -> list[tuple[str, list[str]]]:
    """Return the sentences of each language; for English, the sentences of one file."""
    by_language: dict[str, list[str]] = {}
    with tarfile.open(path) as archive:
        for member in sorted(archive, key=lambda member: member.name):
            language = member.name.rpartition(".")[2]
            content = archive.extractfile(member)
            if content and "tatoeba." in member.name and language not in by_language:
                by_language[language] = content.read().decode().splitlines()
    return sorted(by_language.items())


def join(sentences: list[str]) -> list[str]:
    """Join sentences to documents of at least DOCUMENT_CHARACTERS, or to a single document if they have fewer."""
    documents: list[str] = []
    own: list[str] = []
    for sentence in sentences:
        own.append(sentence)
        if sum(map(len, own)) >= DOCUMENT_CHARACTERS:
            documents.append(" ".join(own))
            own = []
    return documents or [" ".join(own)]


if __name__ == "__main__":
    main()
