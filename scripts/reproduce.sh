#!/usr/bin/env bash
# Runs every experiment of docs/reproduction.md and docs/beyond.md from nothing, then draws the figures and the report.
# Finished runs are skipped and unfinished ones go on, so it can be stopped and started again at any time.
#   scripts/reproduce.sh                          all of them, into outputs/paper and outputs/beyond
#   scripts/reproduce.sh kappa_stress controls    only these
#   CMR_OUTPUT=elsewhere scripts/reproduce.sh     into elsewhere/paper and elsewhere/beyond
set -uo pipefail
cd "$(dirname "$0")/.."

root=${CMR_OUTPUT:-outputs}
paper=(kappa_stress standard_baselines ablation_terms controls ablation_mixing sweep_lambda_rho rivals sweep_lambda)
paper+=(engines ablation_turns ablation_refresh ablation_every ablation_alpha2 ablation_batch ablation_epsilon)
paper+=(ablation_sn rivals_sn diagnostics prescribed_kappa)
# Those that end in _tune are where scripts/choose_lambda.py took the λ in conf/regularizer/<experiment>/ from.
beyond=(plasticity_tune plasticity cifar_plain_tune cifar_plain cifar_plain_orthogonal cifar_vit_tune cifar_vit)
beyond+=(cifar_resnet_tune cifar_resnet char_gpt_tune char_gpt)
experiments=("$@")
[ $# -gt 0 ] || experiments=("${paper[@]}" "${beyond[@]}")

# Rounding depends on the vector instructions, and training magnifies it. The committed results were made with AVX2, which
# nearly every x86 machine has; without these lines one with AVX-512 gives other digits.
export ATEN_CPU_CAPABILITY=avx2
export MKL_ENABLE_INSTRUCTIONS=AVX2
export ONEDNN_MAX_CPU_ISA=AVX2  # convolutions

failed=0
for experiment in "${experiments[@]}"; do
  began=$SECONDS
  output=$root/paper
  [[ " ${beyond[*]} " != *" $experiment "* ]] || output=$root/beyond
  mkdir -p "$output"
  log=$output/$experiment.log
  # One thread per job, as many jobs as cores, as for the committed results: rounding depends on it.
  if cmr-run -m "experiment=$experiment" "output_root=$output" threads=1 hydra/launcher=joblib >"$log" 2>&1; then
    state=done
  else
    state="ended with exit code $?, see $log"
    failed=1
  fi
  echo "$experiment: $state after $((SECONDS - began)) s, $(ls -d "$output/$experiment"/*/ 2>/dev/null | wc -l) runs"
done

cmr-plot "$root" --out "$root/figures"
cmr-report "$root" --out "$root/report"
exit $failed
