// ── decode: base64 → inflate → typed arrays ─────────────────────────────────────────────────────

const ARRAYS = {
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  uint32: Uint32Array,
  int32: Int32Array,
  float64: Float64Array,
};
const BASE64_PIECE = 1 << 20; // a multiple of 4 characters: each piece decodes by itself

/** Lets the browser paint and answer before the next piece of work. */
function breathe() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** The trace's head and all of its blocks by name; `tell` hears how far it is, from 0 to 1. */
async function decodeTrace(tell) {
  const head = JSON.parse(byId("trace-head").textContent);
  const blocks = {};
  for (const [at, block] of head.blocks.entries()) {
    tell(at / head.blocks.length, `unpacking ${block.name}`);
    await breathe();
    blocks[block.name] = await decodeBlock(block);
  }
  return { head, blocks };
}

async function decodeBlock(block) {
  const holder = byId(`block-${block.name}`);
  const packed = await fromBase64(holder.textContent);
  holder.remove(); // the text is not needed again, and is a third larger than its bytes
  const inflated = await inflate(packed);
  if (block.dtype === "json") return JSON.parse(new TextDecoder().decode(inflated));
  const values = new ARRAYS[block.dtype](inflated);
  return block.delta ? runningSum(values) : values;
}

async function fromBase64(text) {
  const pieces = [];
  for (let at = 0; at < text.length; at += BASE64_PIECE) {
    const binary = atob(text.slice(at, at + BASE64_PIECE));
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    pieces.push(bytes);
    if (at > 0) await breathe();
  }
  return new Blob(pieces);
}

function inflate(blob) {
  const stream = blob.stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function runningSum(differences) {
  const sums = new Float64Array(differences.length);
  let sum = 0;
  for (let at = 0; at < differences.length; at++) {
    sum += differences[at];
    sums[at] = sum;
  }
  return sums;
}
