/* pretokenizer_table.c: how each family of models splits text into words.
 *
 * The patterns are facts of the models, from the tokenizer.json that each was published with.
 * The names are those that GGUF converters write into tokenizer.ggml.pre. Characters outside
 * ASCII are spelled \x{...}, since many of them look alike. If a published pattern takes
 * quadratic time on some text, the table has an equivalent one. */
#include "tokenizer/pretokenizer.h"

#include "base/util.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define CONTRACTION "'s|'t|'re|'ve|'m|'ll|'d"
#define ANY_CONTRACTION "(?i:" CONTRACTION ")"

#define GPT2 CONTRACTION "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* What follows the words in cl100k and its descendants. */
#define LINES_AND_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits)                                       \
    ANY_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
                    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES

/* Words in o200k: upper case, then lower case; a mark or a letter without case is both. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS(upper, lower, tail)                                               \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" upper \
    "+" lower "*" tail
#define O200K(digits)                              \
    CASED_WORDS(UPPER, LOWER, ANY_CONTRACTION "?") \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES_AND_SPACES

/* The script as such, not its extensions, which \p{Han} means from PCRE2 10.40 on. */
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
#define HAN "\\p{sc:Han}"
#else
#define HAN "\\p{Han}"
#endif

/* The same without Han: the complements of UPPER and LOWER, and Han, complemented. */
#define UPPER_NOT_HAN "[^" HAN "\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define LOWER_NOT_HAN "[^" HAN "\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"

#define HAN_AND_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define HAN_AND_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define PUNCTUATED_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define DEEPSEEK_V3                                                  \
    PUNCTUATED_WORD "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| " \
                    "?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_AND_SPACES

/* Letters with case, as DeepSeek LLM lists them. */
#define DEEPSEEK_LETTERS                                                                    \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"          \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"  \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"           \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"          \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"          \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}" \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"  \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"          \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"           \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"            \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}" \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"  \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"           \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"          \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"        \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"  \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_PUNCTUATION \
    "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"

#define AFMOE_SCRIPTS                                                               \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}" \
    "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}"    \
    "\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}"  \
    "\\x{1100}-\\x{11ff}]+"

#define YOUTU_SCRIPTS                                                                    \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|"                                         \
    "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}" \
    "\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" HAN_AND_KANA

/* Not (, space, |, and the full stops and commas of several scripts. */
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

const struct pretokenizer_spec pretokenizer_specs[] = {
    {.names = "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum "
              "modern-bert mpt olmo jais trillion granite-docling exaone4",
     .rules = {{GPT2, false}}},
    {.names = "default",
     .rules = {{"[\\p{P}$+<=>^~|]+", false},
               {GPT2, false},
               {"\\p{N}+", false},
               {"[0-9][0-9][0-9]", false}}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .rules = {{CL100K("\\p{N}{1,3}"), false}},
     .ignore_merges = true,
     .add_bos = true},
    {.names = "dbrx smaug-bpe glm4 chatglm-bpe", .rules = {{CL100K("\\p{N}{1,3}"), false}}},
    {.names = "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
     .rules = {{CL100K("\\p{N}"), false}}},
    {.names = "qwen35",
     .rules = {{ANY_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                                "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES,
                false}}},
    {.names = "minicpm5",
     .rules = {{"\\p{N}{1,3}", false}, {CL100K("\\p{N}+"), false}},
     .ignore_merges = true},
    {.names = "seed-coder",
     .rules = {{ANY_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LINES_AND_SPACES,
                false}}},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .rules = {{"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
                "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
                false}}},
    {.names = "exaone-moe",
     .rules = {{ANY_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}\\p{M}*+(?: ?\\p{L}\\p{M}*+)*+"
                                "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]"
                                "|\\s+(?!\\S)|\\s+",
                false}}},
    {.names = "laguna", .rules = {{"[^\\n]+|[\\n]+", false}, {CL100K("\\p{N}"), false}}},
    {.names = "ufakzeka",
     .rules = {{"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES,
                false}}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2",
     .rules = {{O200K("\\p{N}{1,3}"), false}}},
    {.names = "tekken",
     .rules = {{CASED_WORDS(UPPER, LOWER,
                            "") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES_AND_SPACES,
                false}},
     .ignore_merges = true,
     .add_bos = true},
    {.names = "youtu",
     .rules = {{YOUTU_SCRIPTS, false}, {O200K("\\p{N}"), false}},
     .ignore_merges = true},
    {.names = "tiny_aya cohere2moe",
     .rules = {{"(?<!\\d)\\d++(?!\\w)", true}, {O200K("\\p{N}{1,3}"), false}}},
    {.names = "kimi-k2",
     .rules = {{HAN "+|" CASED_WORDS(
                    UPPER_NOT_HAN, LOWER_NOT_HAN,
                    ANY_CONTRACTION
                    "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES,
                false}}},
    {.names = "deepseek-llm",
     .rules = {{"[\\r\\n]", false},
               {"\\s?[" DEEPSEEK_LETTERS "]+", false},
               {"\\s?[" DEEPSEEK_PUNCTUATION "]+", false},
               {"(?<![\\s])\\s++$", false},
               {HAN_AND_HANGUL, false},
               {"\\p{N}+", false}}},
    {.names = "deepseek-coder",
     .rules = {{"[\\r\\n]", false},
               {"\\s?\\p{L}+", false},
               {"\\s?\\p{P}+", false},
               {HAN_AND_HANGUL, false},
               {"\\p{N}", false}}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .rules = {{"\\p{N}{1,3}", false}, {HAN_AND_KANA, false}, {DEEPSEEK_V3, false}}},
    {.names = "spark2_5",
     .rules = {{"\\p{N}{1,3}", false},
               {HAN_AND_KANA, false},
               {PUNCTUATED_WORD "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
                                "|[\\r\\n]|\\s+(?!\\S)|\\s+",
                false},
               {"\\p{N}", false}}},
    {.names = "afmoe",
     .rules = {{"\\p{Nd}+", true}, {AFMOE_SCRIPTS, false}, {DEEPSEEK_V3, false}}},
    {.names = "falcon",
     .rules = {{"[\\p{P}$+<=>^~|`]+", false}, {GPT2, false}, {"[0-9][0-9][0-9]", false}}},
    {.names = "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     .rules = {{"\\p{N}", false}, {GPT2, false}}},
    {.names = "bloom gpt3-finnish poro-chat", .rules = {{BLOOM, false}}},
    {.names = "viking", .rules = {{BLOOM, false}, {"\\p{N}", false}}},
    {.names = "chameleon",
     .rules = {{"<sentinel:[0-9]+>", false},
               {"IMGIMG[A-I]{1,4}Z", false},
               {"[\\t\\n]|    |  ", false},
               {"\\p{N}", false},
               {"[\\p{P}!-/:-@\\[-`{-~]", false},
               {GPT2, false}},
     .add_bos = true},
};

const size_t n_pretokenizer_specs = ARRAY_LEN(pretokenizer_specs);
