-- Verbs that few operations have: backends.Op.grant, overdraw and raise; and amounts.

-- plus is v + f/den + w + g/den, where w and g may be below 0: Amount.Add and Sub.
local function plus(v, f, w, g, den)
  v, f = v + w, f + g
  if f >= den then v, f = v + 1, f - den end
  if f < 0 then v, f = v - 1, f + den end
  return v, f
end

-- less is v + f/den < w + g/den: Amount.Less.
local function less(v, f, w, g) return v < w or v == w and f < g end

-- furtherVerb applies a grant, a charge of as much as fits, or one with an overdraft to v and f. It
-- returns how many charges fit, the value, what was not charged, and whether the rest was charged
-- although it does not fit.
function furtherVerb(op, v, f, max, floor)
  local by, byf, den, maxf, times = op[BY], op[BY_FRAC], op[DEN], op[MAX_FRAC], op[TIMES]
  if op[VERB] == GRANT then
    local least, leastf = plus(floor, 0, op[LEAST], op[LEAST_FRAC], den)
    if less(v, f, least, leastf) then least, leastf = v, f end -- it was granted more before
    if less(max, maxf, v, f) then v, f = max, maxf end
    v, f = plus(v, f, -by, -byf, den)
    if less(v, f, least, leastf) then v, f = least, leastf end
    return times, v, f, 0, 0, false
  end
  local admitted, forced = times, false
  if op[VERB] == CHARGE then -- overdraw
    if less(max, maxf, plus(v, f, op[UNIT], op[UNIT_FRAC], den)) then admitted = 0 end
    max, maxf = plus(max, maxf, op[DEBT], op[DEBT_FRAC], den)
    forced = (op[RECORD] or 0) == 0
    if admitted == 0 and not forced then return 0, v, f, 0, 0, false end
  end
  local w, g = plus(v, f, by, byf, den) -- raise
  if op[KIND] == COUNTER and max > MAX_VALUE then max = MAX_VALUE end
  if less(max, maxf, v, f) then max, maxf = v, f end
  if not less(max, maxf, w, g) then return admitted, w, g, 0, 0, forced end
  local cut, cutf = plus(w, g, -max, -maxf, den)
  return admitted, max, maxf, cut, cutf, forced
end
