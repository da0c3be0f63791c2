"""Bugs planted in the tabular worlds and their kernels."""

from mutants.mutant import Mutant

ENVS = (
    "tests/unit/envs/test_envs_kernels.py tests/unit/envs/test_envs_finite_mdp.py tests/unit/envs/test_envs_mdps.py "
    "tests/unit/envs/test_envs_logged_bandit.py tests/unit/envs/test_envs_gymnasium.py tests/unit/envs/test_envs_catalog.py"
)

MUTANTS = (
    Mutant('envs-kernels-0', 'envs/kernels.py', 'for _ in range(10):', 'for _ in range(9):', ENVS),
    Mutant('envs-kernels-1', 'envs/kernels.py', '((w0 << _WORD_BITS) | w1)', '((w1 << _WORD_BITS) | w0)', ENVS),
    Mutant('envs-kernels-2', 'envs/kernels.py', 'start_RN[r, b // group]\n        for', 'start_RN[r, b % start_RN.shape[1]]\n        for', ENVS),
    Mutant('envs-kernels-3', 'envs/kernels.py', 'weight *= tables.discount', 'weight *= 1.0', ENVS),
    Mutant('envs-kernels-5', 'envs/kernels.py', 'if uniform < cumulative_xK[row, middle]', 'if uniform > cumulative_xK[row, middle]', ENVS),
    Mutant('envs-kernels-6', 'envs/kernels.py', 'grad_RSA[r, s, a] -= total_S[s] * pi_RSA[r, s, a]', 'grad_RSA[r, s, a] -= pi_RSA[r, s, a]', ENVS),
    Mutant('envs-kernels-7', 'envs/kernels.py', 'logits_RSA[r, s, a] - largest)', 'logits_RSA[r, s, a])', ENVS),
    Mutant('envs-kernels-8', 'envs/kernels.py', '_pair(t, b, step, _REWARD_NOISE', '_pair(t, b, step, _ACTION_AND_TRANSITION', ENVS),
    Mutant('envs-kernels-9', 'envs/kernels.py', 'mask_RBT[r, b, t] = True', 'mask_RBT[r, b, t] = not tables.terminal_S[following]', ENVS),
    Mutant('envs-tables-10', 'envs/tables.py', 'cumulative_xK[..., :-1][~mass_after_xK[..., 1:]] = _CLOSED\n', 'pass\n', ENVS),
    Mutant('envs-tables-11', 'envs/tables.py', '+ transition_XS @ bonus_S', '', ENVS),
    Mutant('envs-dynamic-programs-12', 'envs/dynamic_programs.py', '                if tables.terminal_S[s]:\n                    continue\n                for a in range(actions):\n                    row', '                for a in range(actions):\n                    row', ENVS),
    Mutant('envs-dynamic-programs-13', 'envs/dynamic_programs.py', 'finished += ended', 'finished += 0.0 * ended', ENVS),
    Mutant('envs-dynamic-programs-14', 'envs/dynamic_programs.py', 'kl_mu_pi -= mu * log_rho', 'kl_mu_pi += mu * log_rho', ENVS),
    Mutant('envs-dynamic-programs-15', 'envs/dynamic_programs.py', 'square += pi * (pi / mu)', 'square += pi', ENVS),
    Mutant('envs-dynamic-programs-16', 'envs/dynamic_programs.py', '            if tables.start_S[s] > 0.0:\n', '            if True:\n', ENVS),
    Mutant('envs-dynamic-programs-17', 'envs/dynamic_programs.py', 'best = max(best, ahead', 'best = min(0.0, ahead', ENVS),
    Mutant('envs-dynamic-programs-18', 'envs/dynamic_programs.py', '            if by_pi > 0.0:\n', '            if True:\n', ENVS),
    Mutant('envs-finite-mdp-19', 'envs/finite_mdp.py', 'advantage_RTSA *= (self._occupancy(pi_RSA) * self._discount_T1())', 'advantage_RTSA *= (self._occupancy(pi_RSA))', ENVS),
    Mutant('envs-finite-mdp-20', 'envs/finite_mdp.py', '+ 2.0 * bonus_S * later_RS', '+ bonus_S * later_RS', ENVS),
    Mutant('envs-finite-mdp-21', 'envs/finite_mdp.py', 'self.noise_variance_SA() + self', 'self', ENVS),
    Mutant('envs-finite-mdp-22', 'envs/finite_mdp.py', '(np.log(pi_RSA) - np.log(mu_RSA))', '(np.log(mu_RSA) - np.log(pi_RSA))', ENVS),
    Mutant('envs-infinite-horizon-23', 'envs/infinite_horizon.py', 'np.swapaxes(_resolvent(world, pi_xSA), -1, -2)', '_resolvent(world, pi_xSA)', ENVS),
    Mutant('envs-mdps-24', 'envs/mdps.py', 'transition_SAS=(1 - slip) * step_SAS + slip * sideways_SAS', 'transition_SAS=(1 - slip) * step_SAS + slip * np.roll(step_SAS, 1, axis=1)', ENVS),
    Mutant('envs-mdps-25', 'envs/mdps.py', 'transition_SAS[:, 1, 6] = 1.0', 'transition_SAS[:, 1, 5] = 1.0', ENVS),
    Mutant('envs-mdps-26', 'envs/mdps.py', 'np.diag([2.0] * 6 + [1.0])', 'np.diag([1.0] * 6 + [1.0])', ENVS),
    Mutant('envs-logged-bandit-27', 'envs/logged_bandit.py', 'step + _CONTEXT_STEPS, n', 'step, n', ENVS),
    Mutant('envs-logged-bandit-28', 'envs/logged_bandit.py', 'self.logging_SA[context_RN, action_RN],', 'self.logging_SA[0, action_RN],', ENVS),
    Mutant('envs-gym-env-29', 'envs/gym_env.py', 'self._step == self.mdp.horizon', 'self._step == self.mdp.horizon + 1', ENVS),
    Mutant('envs-gym-env-30', 'envs/gym_env.py', '+ float(self.mdp.bonus_S[self._state])', '+ float(self.mdp.bonus_S[state])', ENVS),
    Mutant('envs-gym-env-31', 'envs/gym_env.py', 'super().reset(seed=seed, options=options)', 'super().reset(seed=None, options=options)', ENVS),
    Mutant('envs-catalog-32', 'envs/catalog.py', 'if other is not None and _home', 'if False and _home', ENVS),
    Mutant('envs-checks-33', 'envs/checks.py', '(np.abs(total_x - 1.0) <= _SUM_TOLERANCE)', '(np.abs(total_x - 1.0) <= 10)', ENVS),
)  # fmt: skip
