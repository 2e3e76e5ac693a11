// read-gguf.mjs FILE.gguf HF_DIR OUT: writes the weights of a GGUF file as a Hugging Face folder in f32, so that Strait can
// compute with exactly the numbers that llama.cpp reads: f16 and bf16 are widened, blocks of q8_0 multiplied out, and rows of
// queries and keys put back in order. HF_DIR is an export of the same model; its other files are copied.
import fs from "fs";
import path from "path";

const [file, folder, out] = process.argv.slice(2);
const data = fs.readFileSync(file);
let at = 0;
const u32 = () => data.readUInt32LE((at += 4) - 4);
const u64 = () => Number(data.readBigUInt64LE((at += 8) - 8));
const text = () => { const n = u64(); return data.toString("utf8", (at += n) - n, at); };

// Values of metadata by their type; only what is needed is kept.
const sizes = [1, 1, 2, 2, 4, 4, 4, 1, null, null, 8, 8, 8];
function value(type) {
    if (type === 8) return text();
    if (type === 9) {
        const [inner, n] = [u32(), u64()];
        for (let i = 0; i < n; i++) value(inner);
        return null;
    }
    at += sizes[type];
    return type === 4 ? data.readUInt32LE(at - 4) : null;
}

if (u32() !== 0x46554747) throw new Error("not a GGUF file");
u32();
const [nTensors, nKeys] = [u64(), u64()];
const keys = {};
for (let i = 0; i < nKeys; i++) { const key = text(); keys[key] = value(u32()); }
const tensors = [];
for (let i = 0; i < nTensors; i++) {
    const name = text(), dims = Array.from({length: u32()}, u64).reverse(), type = u32(), offset = u64();
    tensors.push({name, dims, type, offset});
}
const start = Math.ceil(at / 32) * 32;

function half(h) {
    const [e, f] = [h >> 10 & 31, h & 1023];
    return (h & 0x8000 ? -1 : 1) * (e === 0 ? f * 2 ** -24 : (1024 + f) * 2 ** (e - 25));
}

// The values of a tensor as f32. Types: 0 f32, 1 f16, 8 q8_0 (an f16 scale and 32 bytes), 30 bf16.
function read(t) {
    const n = t.dims.reduce((a, b) => a * b, 1), from = start + t.offset, values = new Float32Array(n);
    const bits = new DataView(values.buffer);
    for (let i = 0; i < n; i++) {
        if (t.type === 0) values[i] = data.readFloatLE(from + 4 * i);
        else if (t.type === 1) values[i] = half(data.readUInt16LE(from + 2 * i));
        else if (t.type === 30) bits.setUint32(4 * i, data.readUInt16LE(from + 2 * i) << 16 >>> 0, true);
        else if (t.type === 8) {
            const block = from + 34 * Math.floor(i / 32);
            values[i] = half(data.readUInt16LE(block)) * data.readInt8(block + 2 + i % 32);
        } else throw new Error(`${t.name}: type ${t.type}`);
    }
    return values;
}

// In files of the architecture llama the two values of a rotated pair are neighbours.
function reorder(t, values) {
    if (keys["general.architecture"] !== "llama" || !/attn_[qk]\.weight$/.test(t.name)) return values;
    const [rows, cols] = t.dims, p = keys["llama.attention.key_length"], back = new Float32Array(values.length);
    for (let row = 0; row < rows; row++) {
        const head = row - row % p, i = row % p;
        const from = head + (i < p / 2 ? 2 * i : 2 * (i - p / 2) + 1);
        back.set(values.subarray(from * cols, (from + 1) * cols), row * cols);
    }
    return back;
}

const names = {attn_norm: "input_layernorm", attn_q: "self_attn.q_proj", attn_k: "self_attn.k_proj", attn_v: "self_attn.v_proj",
    attn_output: "self_attn.o_proj", attn_q_norm: "self_attn.q_norm", attn_k_norm: "self_attn.k_norm",
    ffn_norm: "post_attention_layernorm", ffn_gate: "mlp.gate_proj", ffn_up: "mlp.up_proj", ffn_down: "mlp.down_proj"};
const whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight"};
function rename(name) {
    const [, block, part, kind] = name.match(/^blk\.(\d+)\.(\w+)\.(weight|bias)$/) ?? [];
    return block === undefined ? whole[name] : `model.layers.${block}.${names[part]}.${kind}`;
}

fs.mkdirSync(out);
for (const name of fs.readdirSync(folder))
    if (!/safetensors|expected/.test(name)) fs.copyFileSync(path.join(folder, name), path.join(out, name));
const header = {}, parts = [];
let end = 0;
for (const t of tensors) {
    if (t.name === "rope_freqs.weight") continue; // config.json has the scaling
    const values = reorder(t, read(t)), bytes = Buffer.from(values.buffer);
    header[rename(t.name)] = {dtype: "F32", shape: t.dims, data_offsets: [end, end += bytes.length]};
    parts.push(bytes);
}
const json = Buffer.from(JSON.stringify(header)), length = Buffer.alloc(8);
length.writeBigUInt64LE(BigInt(json.length));
fs.writeFileSync(path.join(out, "model.safetensors"), Buffer.concat([length, json, ...parts]));
