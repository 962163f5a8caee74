// What is a formula, and what are two amounts of money. node --test src/
import assert from "node:assert/strict";
import { test } from "node:test";
import { mathAt, mathBlockAt, withoutMaths } from "./maths.js";
import { blocksOf } from "./markdown.js";

const formulas = (text) => {
  const found = [];
  const walk = (tokens) => {
    for (const t of tokens ?? []) {
      if (t.type === "maths" || t.type === "mathsBlock") found.push(t.tex);
      walk(t.tokens);
      walk(t.items);
    }
  };
  walk(blocksOf(text));
  return found;
};

test("formulas between all four pairs are found, and Markdown leaves them alone", () => {
  assert.deepEqual(formulas("So $x_1*y_2$ and $a*b$, \\(c_1 * d_2\\)."), ["x_1*y_2", "a*b", "c_1 * d_2"]);
  assert.deepEqual(formulas("A $$x^2$$ b \\[y_1*z_1\\] c"), ["x^2", "y_1*z_1"]);
  assert.deepEqual(formulas("$$\na\n\n= b\n$$\n\ntext\n\n\\[\nc\n\\]"), ["a\n\n= b", "c"]);
  assert.deepEqual(formulas("- one $a$\n- two\n\n  $$b$$"), ["a", "b"]);
  assert.deepEqual(formulas("**bold $a**b$ bold** *and $x*y$ so*"), ["a**b", "x*y"]);
  assert.deepEqual(formulas("$a \\$ b$ and \\$c$"), ["a \\$ b"]);
  assert.equal(blocksOf("**bold $a**b$ bold**")[0].tokens[0].type, "strong");
});

test("money, programs and halves are text", () => {
  for (const text of [
    "It costs $5 and $6.",
    "between $5-$6, or US$ 10 and CA$ 11",
    "$5 or 10$ notes, $1,000 (about 900$)",
    "$ x $",
    "`$a$` and ```$b$```",
    "Set $HOME to `$x` or $PATH",
    "```sh\necho $A $B$\n```",
    "$$",
    "$$$$",
    "\\( never ends",
    "\\\\(no\\\\)",
    "$x\n\ny$",
  ])
    assert.deepEqual([text, formulas(text)], [text, []]);
});

test("a formula is what is between its marks", () => {
  assert.deepEqual(mathAt("$a$ b"), { raw: "$a$", tex: "a", display: false });
  assert.deepEqual(mathAt("\\[ a \\] b"), { raw: "\\[ a \\]", tex: "a", display: true });
  assert.equal(mathAt("$a$1"), null);
  assert.equal(mathBlockAt("  $$a$$\nb").raw, "  $$a$$\n");
  assert.equal(mathBlockAt("$$a$$ b"), null);
  assert.equal(mathBlockAt("\\[a\\].\n").after, ".");
  assert.equal(withoutMaths("x $a*b$ *y*"), "x aaaaa *y*");
});

test("very many beginnings take no time", () => {
  const began = performance.now();
  for (const mark of ["$", "$$", "$a", "\\(", "\\[", "\\[\n\n", "$a $", " $x*"]) blocksOf(mark.repeat(60000 / mark.length));
  assert.ok(performance.now() - began < 10000);
});
