# rooms.sh, to be sourced: the folders of src in their order. What is in one may use what is in those before it: includes
# (lint/test_includes.sh) and symbols (lint/test_symbols.sh) both follow this list, which ARCHITECTURE.md explains.
rooms=(base net quant format hf convert tokenizer jinja grammar schema chat kernels mixers device shaders roof link fabric arch weights model ranks engine hub cluster server api gateway node cli view commands)
declare -A depth
for i in "${!rooms[@]}"; do depth[${rooms[i]}]=$i; done
