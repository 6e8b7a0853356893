"""The claims of Furukawa & Matsutani (PDP 2022) as experiments, at equal transport and engine."""
