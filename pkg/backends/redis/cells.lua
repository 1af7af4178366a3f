-- Counters and meters: backends.Cell.Step.

-- load is the cell at key: its VALUE, which is false if it is absent, the SECOND and the THIRD number,
-- and OPEN_TEXT, its open reservations; each is false if there is none. The FOURTH number is nil without
-- one. The VALUE of a record is its text. Once a step has more to do than to read, CELL_ENDS is when the
-- cell ends; a step that changes the cell makes it DIRTY. load is nil if the key holds something else.
function load(key, record)
  local cell = loaded[key]
  if cell then return cell end
  local s, value, second, third, open, fourth = redis.pcall('GET', key), false, false, false, false
  if s and s.err then
    if string.find(s.err, 'WRONGTYPE', 1, true) then return end
    error(s.err, 0)
  elseif record then
    loaded[key] = { s }
    return loaded[key]
  elseif s then
    value = tonumber(s)
    local at = not value and string.find(s, ';', 1, true)
    if at then
      value, open = string.sub(s, 1, at - 1), string.sub(s, at + 1)
      if #open < 40 or #open % 32 ~= 8 then return end
      s, value = value, tonumber(value)
    end
    if not value then
      value, second, third, fourth = string.match(s, '^(%-?%d+):(%d+):?(%d*):?(%d*)$')
      value, second, third, fourth = tonumber(value), tonumber(second), tonumber(third) or false, tonumber(fourth)
    end
    local most = 2 * MAX_VALUE -- NaN is not >= 0
    if not (value and value >= -MAX_VALUE and math.max(value, second or 0, third or 0, fourth or 0) <= most) then return end
  end
  cell = { value, second, third, open, false, false }
  if fourth then cell[FOURTH] = fourth end
  loaded[key] = cell
  return cell
end

-- step applies op to its cell. It returns the reply: the numbers of apply.go.
function step(op)
  local kind, span, verb, now, times = op[KIND], op[SPAN], op[VERB], op[NOW], op[TIMES]
  local cell = load(KEYS[op[KEY]])
  local v, second, third, base
  if cell then v, second, third = cell[VALUE], cell[SECOND], cell[THIRD] end
  local credits = kind == METER and v and v < 0 -- then it has a third number
  if not cell or (third or cell[FOURTH]) and span ~= SLIDING and not credits or credits and not third then
    return BAD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  end
  local by, max, ends, mark, gives = op[BY], op[MAX], op[UNTIL], op[MARK], verb == REFUND or verb == UNDO
  local byf, den, maxf, shift, shiftf = 0, 1, 0, 0, 0

  -- It advances to now. changed: the cell is written also if it is not charged.
  local present, f, floor, prev, window, changed, credit = v, 0, 0, 0, false, false, false
  if kind == METER then
    byf, den, maxf, shift, shiftf = op[BY_FRAC], op[DEN], op[MAX_FRAC], op[SHIFT] or 0, op[SHIFT_FRAC] or 0
    floor, f = now, second or 0
    if v and shift + shiftf > 0 then
      if f >= den then v, f, changed = v + 1, 0, true end -- of another denominator
      if v > 0 then v, f = v + shift, f + shiftf end
      if f >= den then v, f = v + 1, f - den end
    end
    local top, topf = op[FURTHEST], op[FURTHEST_FRAC]
    if third and v < 0 and now < third then -- credit
      v, credit = v + now, third
    elseif not v or v < now then
      v, f = now, 0
    elseif top + SKEW < v or top + SKEW == v and topf < f then
      v, f, changed = top, topf, true
    end
  elseif span == SLIDING or span == CARRIED then
    base = cell[FOURTH]
    local windows = v and mark - (second or 0) or 0
    window, prev, changed = mark, third or 0, windows ~= 0
    if windows == -1 or windows < 0 and span == SLIDING and now >= ends - op[WINDOW] then -- the next window has begun
      window, ends, changed = second, ends - windows * op[WINDOW], false
      if windows < -1 then by = 0 end -- the window of op counts no longer
    elseif windows > 0 and span == CARRIED then
      v = math.max(0, v - windows * op[CARRY])
    elseif windows > 1 then
      present, v, prev, base = false, 0, 0, nil
    elseif windows == 1 then
      v, prev, base = 0, math.max(0, v, base or 0), nil
    end
  elseif span ~= FIXED then
    window, present = ends, v and now < (second or 0)
    if present then
      window, changed = math.min(second, ends), second > ends
      if span == FIRST_HIT and gives and mark > 0 and window > mark then by = 0 end -- of a window that is over
    else
      v = false
    end
  end
  v = v or 0

  -- It has room up to max: of a sliding window less Op.Ceiling, or up to Op.ceilingBefore.
  local before = span == SLIDING and window > mark and (gives or verb == FILL) -- it is for the window before
  if before or prev > 0 then
    local count, whole = prev, op[WEIGHT_DEN]
    local num, round = math.max(0, math.min(math.ceil((ends - op[WINDOW] - now) / op[WEIGHT_UNIT]), whole)), math.ceil
    if before then
      count, num, whole, round = math.max(0, max - math.max(0, v)), whole, math.max(num, 1), math.floor
    end
    local rest = count % whole -- as num and whole are at most 2^26, no product is above 2^53
    count = (count - rest) / whole * num + round(rest * num / whole)
    if before then
      max, v, prev = math.min(max, count), prev, v
    else
      max = max - count
    end
  end

  -- The verb.
  local admitted, cut, cutf, forced = times, 0, 0, verb == COUNT
  local reads = by == 0 and byf == 0 and verb < GRANT
  if gives then
    local owes = v < floor
    if not owes or verb == UNDO then
      v, f = v - by * times, f - byf * times
      while f < 0 do v, f = v - 1, f + den end
      if v < floor and not owes then v, f = floor, 0 end
    end
  elseif forced then
    v = math.min(v + by * times, MAX_VALUE)
    if v > max then admitted = by > 0 and math.max(0, times - math.ceil((v - max) / by)) or 0 end -- Op.Fitting
  elseif verb == CHARGE and op[OVERDRAWS] ~= 1 then
    admitted = 0
    while admitted < times do
      local w, g = v + by, f + byf
      if g >= den then w, g = w + 1, g - den end
      if max < w or max == w and maxf < g then break end
      v, f, admitted = w, g, admitted + 1
    end
    local most = kind == COUNTER and MAX_VALUE or 2 * MAX_VALUE -- the year 2255
    if v > most then v, f = most, 0 end
  else
    if verb == GRANT and span == SLIDING and v > (base or 0) then base = v end
    admitted, v, f, cut, cutf, forced = furtherVerb(op, v, f, max, floor)
    if verb == GRANT and v < floor then credit = op[UNTIL] end
  end
  if before then v, prev = prev, v end
  local charged = (admitted > 0 or forced) and (present or not gives or kind == METER)

  -- When it ends: Cell.ends.
  local life
  if kind == METER then
    ends = v < now and credit or f > 0 and v + 1 or v
  elseif span == FIXED then
    life = now + op[LIFE]
  elseif span == CARRIED and v > op[CARRY] then -- Op.CarriedUntil
    local windows = math.floor((v - 1) / math.max(1, math.floor(op[CARRY] / 10)))
    ends = math.min(ends + windows * op[WINDOW], now + MAX_WAIT)
  elseif span < CARRIED then
    if span == FIRST_HIT or reads or not charged or gives or verb == GRANT then ends = window end
    window = ends
  end

  -- It is stored, unless it has only been read.
  changed = not reads and (charged or changed)
  if changed or cell[VALUE] and not reads then cell[CELL_ENDS] = life or ends end
  if changed then
    cell[DIRTY] = true
    if kind == COUNTER then
      cell[VALUE], cell[SECOND], cell[THIRD] = (present or charged) and v, window, span == SLIDING and prev
      if base or cell[FOURTH] then cell[FOURTH] = base end
    elseif v < now and credit then
      cell[VALUE], cell[SECOND], cell[THIRD] = v - now, f, credit
    elseif ends > now then
      local w, g = v - shift, f - shiftf
      if g < 0 then w, g = w - 1, g + den end
      cell[VALUE], cell[SECOND], cell[THIRD] = w, g > 0 and g, false
    else
      cell[VALUE], cell[SECOND], cell[THIRD] = false, false, false
    end
  end
  return admitted, v, ends, f, prev, 0, 0, 0, 0, cut, cutf
end
