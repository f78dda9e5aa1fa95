"""Why a launch takes as long as it does: facts, a model of the time, a rule for each cause; and its profile."""
