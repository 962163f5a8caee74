// A copy of a GGUF file that claims another context length: node long_context.mjs FROM TO KEY N. What a model
// writes beyond what it was trained for is noise, but a client's long prompts find room.
import fs from "node:fs";
const [from, to, key, n] = process.argv.slice(2);
const file = fs.readFileSync(from);
const type = file.indexOf(key) + key.length, U32 = 4;
if (type < key.length || file.readUInt32LE(type) !== U32) throw new Error(`${key} is no u32 of ${from}`);
file.writeUInt32LE(Number(n), type + 4);
fs.writeFileSync(to, file);
