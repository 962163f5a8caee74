#!/usr/bin/env python3
"""Made-up vocabularies in tiktoken.model files, texts, and their ids, for test_tiktoken.sh.

The encoder is tiktoken's algorithm as its README tells it (of all neighbours whose bytes together are a
token the pair of lowest rank joins, the leftmost of equal ones), quadratic and without a list of merges;
text is cut by Python's re, with the pattern of Moonshot's tokenization_kimi.py, whose classes are written
out for the letters that the texts have.

usage: tiktoken.py FOLDER trained|random     a folder with a model of one layer, texts, and ids
"""
import base64
import json
import math
import os
import random
import re
import sys
import unicodedata

from hf_folder import Folder

HAN = "中文漢字々〇"
LETTERS = "aAbBcsStTdDmMlLrReEvV" "éÉñßжЖяЯ" "ǅʰªॐ" "ひらカナ한글اب" + HAN
OTHERS = "0123456789٣Ⅷ½" "\u0301\u093e\u20dd" ".,!?/-_'’\"(){}<>|=+*#$€、。…" "🙂🏳\u200d" "\x00\x07"
SPACES = " \t\n\r\u00a0\u3000\u2028"
ALPHABET = LETTERS + OTHERS + SPACES
SPECIALS = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 5: ("<think>", False)}


def characters(*categories, also="", without=""):
    """A class of re: letters of ALPHABET of these categories."""
    s = [c for c in ALPHABET if unicodedata.category(c).startswith(categories) and c not in without]
    return "".join(map(re.escape, s + list(also)))


def pattern():
    upper = characters("Lu", "Lt", "Lm", "Lo", "M", without=HAN)
    lower = characters("Ll", "Lm", "Lo", "M", without=HAN)
    letter, number = characters("L"), characters("N")
    space = "".join(map(re.escape, SPACES))
    tail = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    return re.compile("|".join([
        "[%s]+" % HAN,
        r"[^\r\n%s%s]?[%s]*[%s]+%s" % (letter, number, upper, lower, tail),
        r"[^\r\n%s%s]?[%s]+[%s]*%s" % (letter, number, upper, lower, tail),
        "[%s]{1,3}" % number,
        r" ?[^%s%s%s]+[\r\n]*" % (space, letter, number),
        r"[%s]*[\r\n]+" % space,
        r"[%s]+(?![^%s])" % (space, space),
        "[%s]+" % space]))


def encode_word(ranks, word):
    if word in ranks:
        return [ranks[word]]
    parts = [word[i:i + 1] for i in range(len(word))]
    while len(parts) > 1:
        pairs = [(ranks.get(a + b, math.inf), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        rank, i = min(pairs)
        if rank == math.inf:
            break
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return [ranks[p] for p in parts]


def encode(ranks, specials, cut, text):
    ids = []
    for piece in re.split("(%s)" % "|".join(map(re.escape, specials)), text):
        if piece in specials:
            ids.append(specials[piece])
            continue
        words = cut.findall(piece)
        assert "".join(words) == piece, (piece, words)
        for word in words:
            ids += encode_word(ranks, word.encode())
    return ids


def train(rng, cut, n):
    """Byte pair encoding: the commonest pair becomes a token, n times."""
    words = [[bytes([b]) for b in w.encode()] for t in texts(rng, 200, ()) for w in cut.findall(t)]
    tokens = []
    for _ in range(n):
        counts = {}
        for w in words:
            for pair in zip(w, w[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        pair = max(counts, key=lambda p: (counts[p], p))
        tokens.append(pair[0] + pair[1])
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == pair:
                    w[i:i + 2] = [tokens[-1]]
                i += 1
    return tokens


def chance(rng, n):
    """Tokens that no training would give: many ways lead to one, some have none."""
    tokens = set()
    while len(tokens) < n:
        alphabet = rng.choice(("a", "ab", "ab ", "aAbBé", "中文", LETTERS))
        word = "".join(rng.choice(alphabet) for _ in range(rng.randrange(2, 7))).encode()
        tokens.add(word[rng.randrange(2):rng.choice((None, -1))])
    return [t for t in sorted(tokens, key=lambda _: rng.random()) if len(t) > 1]


def texts(rng, n, specials):
    for _ in range(n):
        alphabet = rng.choice(("a", "ab", "ab ", "aAbB's ", HAN + "ひ、 a", "0123456789 a", SPACES + "a.",
                               LETTERS + "  ", ALPHABET, ALPHABET))
        parts = [rng.choice(alphabet) for _ in range(rng.randrange(1, 40))]
        if specials and rng.random() < 0.1:
            parts.insert(rng.randrange(len(parts)), rng.choice(list(specials)))
        yield "".join(parts)


def main():
    path, kind = sys.argv[1:]
    rng, cut = random.Random(7), pattern()
    single = [bytes([b]) for b in range(256)]
    rng.shuffle(single)
    tokens = single + (train(rng, cut, 400) if kind == "trained" else chance(rng, 500))
    tokens = list(dict.fromkeys(tokens))
    if kind != "trained":
        rng.shuffle(tokens)  # a byte's rank may be higher than that of what it is part of
    ranks = {t: i for i, t in enumerate(tokens)}
    n = len(tokens)
    specials = {"<|reserved_token_%d|>" % i: i for i in range(n, n + 256)}
    for i, (text, _) in SPECIALS.items():
        del specials["<|reserved_token_%d|>" % (n + i)]
        specials[text] = n + i

    class Options:
        weights = None
    folder = Folder(Options)
    folder.put("model.embed_tokens.weight", "F32", (n + 256, 1), bytes(4 * (n + 256)))
    config = {"model_type": "llama", "max_position_embeddings": 64, "hidden_size": 1,
              "num_hidden_layers": 1, "intermediate_size": 1, "num_attention_heads": 1, "head_dim": 2,
              "tie_word_embeddings": True}
    settings = {"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]",
                "added_tokens_decoder": {str(n + i): {"content": t, "special": special}
                                         for i, (t, special) in SPECIALS.items()}}
    os.makedirs(path)
    folder.write(path, 1)
    for name, value in (("config", config), ("tokenizer_config", settings)):
        with open(os.path.join(path, name + ".json"), "w") as f:
            json.dump(value, f)
    with open(os.path.join(path, "tiktoken.model"), "wb") as f:
        for t in rng.sample(tokens, n):
            f.write(base64.b64encode(t) + b" %d\n" % ranks[t])
    with open(path + ".texts", "w") as text_file, open(path + ".ids", "w") as id_file:
        for text in texts(rng, 3000, specials):
            print(json.dumps(text), file=text_file)
            print(json.dumps(encode(ranks, specials, cut, text), separators=(",", ":")), file=id_file)


main()
