"""Everything goes wrong at random, for as long as it is given: kills, halts, cuts, crashes, pauses, limits, schedules."""
