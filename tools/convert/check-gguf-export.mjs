// check-gguf-export.mjs FILE.gguf EXPECTED.safetensors GIVEN [MARGIN]: compares llama.cpp with Strait on one sequence:
// EXPECTED has its tokens, the first GIVEN of which were given and the rest chosen greedily by Strait, and Strait's logits
// after each (tests/cli/helpers/logits.c writes it). At every place from GIVEN on, after the same tokens, llama.cpp's choice
// must be Strait's, unless Strait's two best logits are within MARGIN (1e-3). Prints also the greedy continuation by llama.cpp
// itself, and the largest difference of logarithms of probabilities among Strait's ten best tokens of a place.
//
// With f16, bf16 and q8_0 compute EXPECTED from the weights of the file (read-gguf.mjs): they are rounded. llama.cpp rounds
// activations to the type of the weights, too, which Strait does not: the margin covers that.
//
// Needs llama.cpp as an npm package: run it in a folder where `npm install --ignore-scripts
// node-llama-cpp` was run. One thread and a cache of keys and values in f32.
import fs from "fs";
import {createRequire} from "module";
import {pathToFileURL} from "url";

const require = createRequire(pathToFileURL(process.cwd() + "/"));
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const [file, expected, given, margin] = [...process.argv.slice(2, 4), Number(process.argv[4]), Number(process.argv[5] ?? 1e-3)];

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

const ours = load(expected), n = ours.tokens.length;
const llama = await getLlama({gpu: false, build: "never", maxThreads: 1, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({
    contextSize: n + 8, threads: 1, flashAttention: false, sequences: 2,
    experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"});

// Every place after the same tokens.
const ask = {generateNext: {token: true, probabilities: true, options: {temperature: 0}}};
const forced = await context.getSequence().controlledEvaluate(
    ours.tokens.slice(0, n - 1).map((token, i) => i >= given - 1 ? [token, ask] : token));
let near = 0, wrong = 0, apart = 0;
for (let row = given - 1; row < n - 1; row++) {
    const logits = ours.logits(row), total = Math.log(logits.reduce((a, l) => a + Math.exp(l - logits[0]), 0)) + logits[0];
    const best = logits.map((l, v) => [l, v]).sort((a, b) => b[0] - a[0]).slice(0, 10);
    for (const [l, v] of best)
        apart = Math.max(apart, Math.abs(l - total - Math.log(forced[row].next.probabilities.get(v))));
    const isNear = best[0][0] - best[1][0] <= margin;
    near += isNear;
    if (!isNear && forced[row].next.token !== best[0][1]) wrong++;
}

// llama.cpp on its own.
const made = ours.tokens.slice(0, given);
for await (const token of context.getSequence().evaluate(made.slice(), {temperature: 0})) {
    made.push(token);
    if (made.length >= n) break;
}
let same = given;
while (same < n && made[same] === ours.tokens[same]) same++;
console.log(`${file}: ${wrong} of ${n - given} choices differ, ${near} within ${margin} not judged; log-probabilities within `
    + `${apart.toExponential(1)}; ${same - given} tokens of its own continuation equal`);
process.exit(wrong > 0 ? 1 : 0);
