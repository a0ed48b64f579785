"""A model folder, read into frozen records. No torch, no pickle, no code from the folder is run."""

from hotbed.checkpoint.fingerprint import fingerprint
from hotbed.checkpoint.load import load_checkpoint
from hotbed.checkpoint.records import (
    ArchitectureConfig,
    BertConfig,
    Checkpoint,
    DecoderConfig,
    Gemma3Config,
    ModernBertConfig,
    MpnetConfig,
    PoolingConfig,
    Prompts,
    RotaryBertConfig,
    TensorInfo,
    TokenizerFiles,
)
from hotbed.core.defaults import DEFAULT_MODEL

__all__ = [
    "DEFAULT_MODEL",
    "ArchitectureConfig",
    "BertConfig",
    "Checkpoint",
    "DecoderConfig",
    "Gemma3Config",
    "ModernBertConfig",
    "MpnetConfig",
    "PoolingConfig",
    "Prompts",
    "RotaryBertConfig",
    "TensorInfo",
    "TokenizerFiles",
    "fingerprint",
    "load_checkpoint",
]
