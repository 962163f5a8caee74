/* hf_tables.h: tables of keys, settings and names that several architectures of hf_archs.c and
 * hf_layered_archs.c share, and what their rows are written with. */
#ifndef LOCKSTEP_HF_HF_TABLES_H
#define LOCKSTEP_HF_HF_TABLES_H

#include "hf/hf_impl.h"

#define U32(key, name) \
    { key, GGUF_U32, name, NULL, NAN }
#define F32(key, name) \
    { key, GGUF_F32, name, NULL, NAN }
#define BOOL(key, name) \
    { key, GGUF_BOOL, name, NULL, NAN }
#define END_OF_KEYS \
    { 0 }
#define END_OF_MUSTS \
    { 0 }
#define NAMES_END \
    { 0 }

extern const struct hf_key hf_common_keys[], hf_head_keys[], hf_mixtral_keys[],
    hf_routed_keys[], hf_mla_keys[];
extern const struct hf_must hf_silu[], hf_routed_musts[];
extern const struct hf_name hf_attention_names[], hf_ffn_names[], hf_bias_names[],
    hf_expert_names[], hf_block_sparse_names[], hf_mla_names[], hf_gemma3_names[];

#endif
