// check-gguf-export.mjs FILE.gguf EXPECTED.safetensors GIVEN: continues the first GIVEN tokens of
// EXPECTED greedily with llama.cpp and compares with Strait's tokens (tests/cli/helpers/logits.c writes
// them). Exits with 1 if they differ where Strait's two best logits are more than 1e-3 apart.
//
// Needs llama.cpp as an npm package: run it in a folder where `npm install --ignore-scripts
// node-llama-cpp` was run. One thread and a cache of keys and values in f32.
import fs from "fs";
import {createRequire} from "module";
import {pathToFileURL} from "url";

const require = createRequire(pathToFileURL(process.cwd() + "/"));
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const [file, expected, given] = process.argv.slice(2);

// The tensors `tokens` and `logits` of a safetensors file.
function load(path) {
    const bytes = fs.readFileSync(path), size = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, 8 + size)), data = bytes.subarray(8 + size);
    const [first, end] = header.tokens.data_offsets, vocab = header.logits.shape[1];
    return {
        tokens: Array.from({length: (end - first) / 4}, (_, i) => data.readInt32LE(first + 4 * i)),
        logits: (row) => Array.from({length: vocab}, (_, v) =>
            data.readFloatLE(header.logits.data_offsets[0] + 4 * (row * vocab + v))),
    };
}

const ours = load(expected), n = ours.tokens.length, made = ours.tokens.slice(0, Number(given));
const llama = await getLlama({gpu: false, build: "never", maxThreads: 1, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({
    contextSize: n + 8, threads: 1, flashAttention: false,
    experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"});
for await (const token of context.getSequence().evaluate(made.slice(), {temperature: 0})) {
    made.push(token);
    if (made.length >= n) break;
}
let same = Number(given);
while (same < n && made[same] === ours.tokens[same]) same++;
let gap = 0;
if (same < n) {
    const [best, second] = ours.logits(same - 1).sort((a, b) => b - a);
    gap = best - second;
}
console.log(`${file}: ${same - given} of ${n - given} tokens equal` + (same < n ? `, then two logits ${gap.toFixed(5)} apart` : ""));
process.exit(gap > 1e-3 ? 1 : 0);
