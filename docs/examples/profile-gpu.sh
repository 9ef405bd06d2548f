#!/usr/bin/env bash
# Profiles one GPU in three jobs that share a table, fits it, and replays a scenario on it. Arguments: GPU preset
# (default h200_sxm), folder (default ./tables/GPU). DRY_RUN=1 prints the grids and time estimates only, on any
# machine. Other settings: DEVICE (cuda:0), ATTENTION (auto), DEADLINE (400s a job).
set -euo pipefail
gpu=${1:-h200_sxm}
out=${2:-tables/$gpu}

profile() { # model, tensor-parallel size: the head counts of one rank
  if [ -n "${DRY_RUN:-}" ]; then
    stallfree profile --model "$1" --tp "$2" --gpu "$gpu" --max-len 32768 --dry-run
  else
    stallfree profile --model "$1" --tp "$2" --gpu "$gpu" --max-len 32768 --device "${DEVICE:-cuda:0}" \
      --attention "${ATTENTION:-auto}" --deadline "${DEADLINE:-400s}" --resume --out "$out"
  fi
}

profile llama-3-8b 1  # 32 query and 8 KV heads, as Mistral-7B
profile yi-34b 2      # 28 and 4
profile llama-2-70b 4 # 16 and 2
[ -z "${DRY_RUN:-}" ] || exit 0

stallfree kernels fit "$out"
stallfree replay default --device "${DEVICE:-cuda:0}" --set "gpu=$gpu" --set "kernels=$out"
stallfree replay default --device "${DEVICE:-cuda:0}" --set "gpu=$gpu" --set "kernels=$out" --mode live --deadline 60s
