"""A real GGUF of half a megabyte: two layers of random weights, biased towards printable tokens; or a slower one."""

from pathlib import Path

import gguf
import numpy as np

WIDTH, FEED_FORWARD, LAYERS, HEADS = 64, 128, 2, 4
CONTEXT = 256
PRINTABLE = [bytes([code]) for code in range(33, 127)]


def write(path: Path, seed: int = 0, *, lively: bool = False, context: int = CONTEXT, times: int = 1) -> None:
    """Write the model; another seed makes another model, a lively one says another thing every time.

    `times`: as many layers and as wide a feed-forward network, so that a token takes its time.
    """
    layers, feed_forward = LAYERS * times, FEED_FORWARD * times
    spread = 0.5 if lively else 0.05
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * spread).astype(np.float32)

    tokens = [
        b"<unk>",
        b"<s>",
        b"</s>",
        *(f"<0x{code:02X}>".encode() for code in range(256)),
        b"\xe2\x96\x81",
        *PRINTABLE,
    ]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (len(tokens) - 259)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(rank) for rank in range(len(tokens) - 259)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    embedding, output = weights(len(tokens), WIDTH), weights(len(tokens), WIDTH) * 8
    embedding[:, 0], output[:, 0], output[:259, 0] = 1.0, 0.0, -9.0  # a constant that rules out control and byte tokens
    if lively:
        output[:259] = 0.0  # far below the best of the others
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output.weight", output)
    for layer in range(layers):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", weights(WIDTH, WIDTH))
        writer.add_tensor(f"blk.{layer}.ffn_gate.weight", weights(feed_forward, WIDTH))
        writer.add_tensor(f"blk.{layer}.ffn_up.weight", weights(feed_forward, WIDTH))
        writer.add_tensor(f"blk.{layer}.ffn_down.weight", weights(WIDTH, feed_forward))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
