#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --output={log}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@180
# Yours to fill in: #SBATCH --time=24:00:00 --partition=.. --account=.. --mem=..
#
# Written by reasonrag train. Submit it: sbatch {script}
# Requeued or submitted again, it continues from the last checkpoint. Every machine must see {out} and the
# data at the same place.

set -euo pipefail
cd {here}
{exports}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export MASTER_ADDR

# one task a machine; LLaMA-Factory starts one process for each of its GPUs, which meet at the first machine
srun --kill-on-bad-exit=1 --cpus-per-task={cpus} bash -c {task}
