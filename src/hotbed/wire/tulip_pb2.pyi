from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FLOAT32: _ClassVar[Dtype]
    FLOAT16: _ClassVar[Dtype]
    INT8: _ClassVar[Dtype]
    BINARY: _ClassVar[Dtype]
    UBINARY: _ClassVar[Dtype]
    SPARSE_ENTRY: _ClassVar[Dtype]

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DENSE: _ClassVar[Kind]
    TOKENS: _ClassVar[Kind]
    MULTI_VECTOR: _ClassVar[Kind]
    SPARSE: _ClassVar[Kind]

class Normalize(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_DEFAULT: _ClassVar[Normalize]
    YES: _ClassVar[Normalize]
    NO: _ClassVar[Normalize]
FLOAT32: Dtype
FLOAT16: Dtype
INT8: Dtype
BINARY: Dtype
UBINARY: Dtype
SPARSE_ENTRY: Dtype
DENSE: Kind
TOKENS: Kind
MULTI_VECTOR: Kind
SPARSE: Kind
MODEL_DEFAULT: Normalize
YES: Normalize
NO: Normalize

class Ragged(_message.Message):
    __slots__ = ("token_ids", "lengths", "span_counts", "span_bounds", "pair_starts")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    SPAN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SPAN_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    PAIR_STARTS_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    lengths: bytes
    span_counts: bytes
    span_bounds: bytes
    pair_starts: bytes
    def __init__(self, token_ids: _Optional[bytes] = ..., lengths: _Optional[bytes] = ..., span_counts: _Optional[bytes] = ..., span_bounds: _Optional[bytes] = ..., pair_starts: _Optional[bytes] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("dimensions", "dtype", "normalize", "raw_scores", "kind", "also")
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    dimensions: int
    dtype: Dtype
    normalize: Normalize
    raw_scores: bool
    kind: Kind
    also: _containers.RepeatedCompositeFieldContainer[Output]
    def __init__(self, dimensions: _Optional[int] = ..., dtype: _Optional[_Union[Dtype, str]] = ..., normalize: _Optional[_Union[Normalize, str]] = ..., raw_scores: _Optional[bool] = ..., kind: _Optional[_Union[Kind, str]] = ..., also: _Optional[_Iterable[_Union[Output, _Mapping]]] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_us", "device_us", "total_us")
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    DEVICE_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_US_FIELD_NUMBER: _ClassVar[int]
    queue_us: int
    device_us: int
    total_us: int
    def __init__(self, queue_us: _Optional[int] = ..., device_us: _Optional[int] = ..., total_us: _Optional[int] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("data", "count", "width", "dtype", "timings", "fingerprint", "counts", "also")
    DATA_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    count: int
    width: int
    dtype: Dtype
    timings: Timings
    fingerprint: str
    counts: bytes
    also: _containers.RepeatedCompositeFieldContainer[Rows]
    def __init__(self, data: _Optional[bytes] = ..., count: _Optional[int] = ..., width: _Optional[int] = ..., dtype: _Optional[_Union[Dtype, str]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., fingerprint: _Optional[str] = ..., counts: _Optional[bytes] = ..., also: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "param", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    param: str
    retry_after_ms: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., param: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ("id", "batch", "output", "timeout_ms", "tenant", "traceparent")
    ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: int
    batch: Ragged
    output: Output
    timeout_ms: int
    tenant: bytes
    traceparent: str
    def __init__(self, id: _Optional[int] = ..., batch: _Optional[_Union[Ragged, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., tenant: _Optional[bytes] = ..., traceparent: _Optional[str] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("items", "cancel")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    cancel: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., cancel: _Optional[_Iterable[int]] = ...) -> None: ...

class ItemResult(_message.Message):
    __slots__ = ("id", "rows", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    rows: Rows
    error: Error
    def __init__(self, id: _Optional[int] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class StreamReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ItemResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ItemResult, _Mapping]]] = ...) -> None: ...

class EmbedRequest(_message.Message):
    __slots__ = ("batch", "output", "tenant")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    batch: Ragged
    output: Output
    tenant: bytes
    def __init__(self, batch: _Optional[_Union[Ragged, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ..., tenant: _Optional[bytes] = ...) -> None: ...

class EmbedReply(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: Rows
    def __init__(self, rows: _Optional[_Union[Rows, _Mapping]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InfoReply(_message.Message):
    __slots__ = ("model", "task", "architecture", "dimensions", "max_tokens", "vocab_size", "pooling", "normalize", "dtype", "device", "fingerprint", "limits", "version", "labels", "activation", "token_types", "local_stream", "outputs")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STREAM_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    task: str
    architecture: str
    dimensions: int
    max_tokens: int
    vocab_size: int
    pooling: str
    normalize: bool
    dtype: str
    device: str
    fingerprint: str
    limits: Limits
    version: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    activation: str
    token_types: int
    local_stream: bool
    outputs: _containers.RepeatedCompositeFieldContainer[OutputWidth]
    def __init__(self, model: _Optional[str] = ..., task: _Optional[str] = ..., architecture: _Optional[str] = ..., dimensions: _Optional[int] = ..., max_tokens: _Optional[int] = ..., vocab_size: _Optional[int] = ..., pooling: _Optional[str] = ..., normalize: _Optional[bool] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., fingerprint: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., version: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., activation: _Optional[str] = ..., token_types: _Optional[int] = ..., local_stream: _Optional[bool] = ..., outputs: _Optional[_Iterable[_Union[OutputWidth, _Mapping]]] = ...) -> None: ...

class OutputWidth(_message.Message):
    __slots__ = ("kind", "width")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    width: int
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., width: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("waiting_tokens", "open_items", "steps", "step_sequences", "step_tokens", "step_seconds", "failed_steps", "engine")
    class EngineEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OPEN_ITEMS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STEP_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILED_STEPS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    waiting_tokens: int
    open_items: int
    steps: int
    step_sequences: int
    step_tokens: int
    step_seconds: float
    failed_steps: int
    engine: _containers.ScalarMap[str, int]
    def __init__(self, waiting_tokens: _Optional[int] = ..., open_items: _Optional[int] = ..., steps: _Optional[int] = ..., step_sequences: _Optional[int] = ..., step_tokens: _Optional[int] = ..., step_seconds: _Optional[float] = ..., failed_steps: _Optional[int] = ..., engine: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_step_tokens", "max_step_sequences", "max_queue_tokens", "max_item_sequences", "max_item_tokens", "max_stream_items")
    MAX_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_STREAM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    max_step_tokens: int
    max_step_sequences: int
    max_queue_tokens: int
    max_item_sequences: int
    max_item_tokens: int
    max_stream_items: int
    def __init__(self, max_step_tokens: _Optional[int] = ..., max_step_sequences: _Optional[int] = ..., max_queue_tokens: _Optional[int] = ..., max_item_sequences: _Optional[int] = ..., max_item_tokens: _Optional[int] = ..., max_stream_items: _Optional[int] = ...) -> None: ...
