-- Reservations: backends.Lapsing and backends.Record.
--
-- The open reservations of a cell stand behind its value (see cells.lua); those of a list behind a 0
-- at a key of their own, and byf is Record.At there. A record is doubles: ends, if it is settled, or
-- by, mark, ends, number and byf, unless that is 0.

-- digits is an integer >= 0 as text. Integers of 32 bits are written faster than doubles.
local function digits(n)
  local low = n % 1000000000
  return n == low and string.format('%d', n) or string.format('%d%09d', (n - low) / 1000000000, low)
end

-- place is the entry of ends and mark in back (Lapsing.Back): where it begins and ends, its by and
-- byf; or nil.
local function place(back, ends, mark)
  if back == '' then return end
  local from, to = string.find(back, string.format(';%.0f:%.0f:', ends, mark), 1, true)
  if not from then return end
  local _, last, by, byf = string.find(back, '^(%d+):(%d+)', to + 1)
  return from, last, tonumber(by), tonumber(byf)
end

-- put is back with by at the entry of ends and mark, or without the entry if by is 0.
local function put(back, ends, mark, by, byf)
  local from, to = place(back, ends, mark)
  if not from then
    from, to = #back + 1, #back
    local last = tonumber(string.match(string.sub(back, -80), '.*;(%d+):%d+:%d+:') or 0)
    for at, e, m in string.gmatch(back, '();(%d+):(%d+):%d+:%d+') do
      e, m = tonumber(e), tonumber(m)
      if last < ends then break end -- it is the last one, as usual
      if e > ends or e == ends and m > mark then
        from, to = at, at - 1
        break
      end
    end
  end
  local entry = (by > 0 or by == 0 and byf > 0) and string.format(';%.0f:%.0f:%.0f:%.0f', ends, mark, by, byf) or ''
  return string.sub(back, 1, from - 1) .. entry .. string.sub(back, to + 1)
end

-- takeBack makes of op the operation that gives back by of the hits of rec: Record.takeBack. If there
-- is nothing to give back, it makes of op the one that reads the cell: Op.Look.
local function takeBack(op, rec, by, byf)
  if not rec or rec.settled or op[KIND] == COUNTER and rec.mark ~= op[OWN_MARK] then
    op[VERB], op[BY], op[BY_FRAC], op[MAX], op[MAX_FRAC] = CHARGE, 0, 0, NO_MAX, 0
    return
  end
  op[BY], op[BY_FRAC] = by, byf
  if op[VERB] ~= UNDO then op[VERB] = REFUND end
  if op[KIND] == LIST then op[MARK], op.at = rec.mark, rec.at end
end

-- against makes of op the operation that it comes to beside rec, the record of its ID as op finds it,
-- and returns what it does to the reservation if it is admitted: Record.Against.
local function against(op, rec)
  local by, byf, gives, id = op[BY], op[BY_FRAC], op[VERB] == REFUND or op[VERB] == UNDO, op[RECORD]
  op[RECORD] = 0
  if not rec and not gives then
    if op[KNOWN] == 1 then return SETTLED end
    if by == 0 and byf == 0 then return NO_HOLD end
    op[RECORD] = id
    return HELD
  elseif not rec or rec.settled then
    takeBack(op, rec)
    return rec and UNCHANGED or NO_HOLD
  end
  local more, moref = minus(by, byf, rec.by, rec.byf, op[DEN])
  if gives then
    takeBack(op, rec, rec.by, rec.byf)
  elseif more < 0 then
    takeBack(op, rec, minus(rec.by, rec.byf, by, byf, op[DEN]))
  else
    op[BY], op[BY_FRAC] = more, moref
    if (op[DEBT] or 0) == 0 and (op[DEBT_FRAC] or 0) == 0 then op[VERB] = FILL end
  end
  return SETTLED
end

-- recordOf is the record that is stored as text; nil if op finds none: Lapsing.forgets and
-- Record.foundBy. number and back are those of the open reservations.
local function recordOf(op, text, number, back)
  if not text then return end
  if #text == 8 then
    local ends = struct.unpack('<d', text)
    return op[NOW] < ends and { settled = true, ends = ends }
  end
  local rec = { byf = 0 }
  rec.by, rec.mark, rec.ends, rec.number = struct.unpack('<dddd', text)
  local rest = #text > 32 and struct.unpack('<d', text, 33)
  if op[NOW] >= rec.ends then return end
  if op[KIND] == LIST then rec.at = rest else rec.byf = rest or 0 end
  local own = rec.mark == op[OWN_MARK]
  if op[KIND] ~= COUNTER or op[SPAN] ~= FIXED or own then
    if rec.number ~= number then return end
    if op[GIVE_BACK] == 1 then
      local from, _, by, byf = place(back, rec.ends, rec.mark)
      if not from or by < rec.by or by == rec.by and byf < (rec.at or rec.byf) then return end
    end
  end
  if op[KNOWN] == 1 then -- Record.isOver
    if op[KIND] == LIST and (rec.at or rec.mark) <= op[NOW] - op[WINDOW] then return end
    if op[KIND] == COUNTER and not own and (op[SPAN] ~= SLIDING or rec.mark < op[MARK] - 1) then return end
  end
  return rec
end

-- stepHold is step for an operation with a Hold: Lapsing.StepHold and Lapsing.settle. It
-- makes of op the operation that op comes to.
function stepHold(op)
  local now, kind, verb, named, den = op[NOW], op[KIND], op[VERB], op[RECORD] > 0, op[DEN]
  local cell, record = load(KEYS[op[OPEN]]), named and load(KEYS[op[RECORD]], true)
  if not cell or named and not record then return BAD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 end
  local apply = kind == LIST and stepList or step
  local number, stays, back, changed = 0, 0, '', false
  if cell[OPEN_TEXT] then
    number, stays, back = string.match(cell[OPEN_TEXT], '^;(%d+):(%d+)(.*)$')
    number, stays = tonumber(number), tonumber(stays)
  end
  while op[GIVE_BACK] == 1 do -- Lapsing.Lapse
    local _, to, ends, mark, by, byf = string.find(back, '^;(%d+):(%d+):(%d+):(%d+)')
    if not to or tonumber(ends) > now then break end
    back, changed = string.sub(back, to + 1), true
    local on, rec, part = { unpack(op) }, { mark = tonumber(mark) }, tonumber(byf)
    if kind == LIST then rec.at, part = part > 0 and part, 0 end
    on[HOLD], on[RECORD], on[TIMES], on[VERB] = 0, 0, 1, REFUND
    takeBack(on, rec, tonumber(by), part)
    apply(on)
  end
  if back == '' and stays <= now and number > 0 and (named or op[GIVE_BACK] == 1) then
    number, stays, changed = 0, 0, true
  end

  local by, byf, state, rec, held, heldf = op[BY], op[BY_FRAC], NO_HOLD, nil, 0, 0
  if named then
    rec = recordOf(op, record[VALUE], number, back)
    state = against(op, rec)
  end
  local admitted, value, ends, frac, prev, retry, _, _, _, cut, cutf = apply(op)
  if admitted < 0 then return BAD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 end
  if state == HELD and admitted == 0 then state = NO_HOLD end
  if state >= SETTLED then
    admitted = op[TIMES]
    if record[MAKER] then op.maker = record[MAKER] end
  end
  if state == HELD then
    local mark, ends = op[OWN_MARK], op[ENDS]
    by, byf = minus(by, byf, cut, cutf, den)
    if kind == LIST then byf = mark ~= op[DATE] and now or 0 end
    if number == 0 then number = op[NUMBER] end
    record[VALUE] = struct.pack(byf > 0 and '<ddddd' or '<dddd', by, mark, ends, number, byf)
    changed = true
    if op.of then record[MAKER] = op.of end
    if op[GIVE_BACK] == 0 then
      stays = math.max(stays, ends)
    else
      local from, _, w, g = place(back, ends, mark)
      if from then by, byf = plus(w, g, by, byf, den) end
      back = put(back, ends, mark, by, byf)
    end
  elseif state == SETTLED then
    if rec then
      held, heldf = rec.by, rec.byf
      if op[BY] == 0 and op[BY_FRAC] == 0 and verb < REFUND then -- it is the same, or the window is over
        cut, cutf = minus(held, heldf, by, byf, den)
      end
      local from, _, w, g = place(back, rec.ends, rec.mark)
      if from and rec.number == number then -- Lapsing.Take
        back, changed = put(back, rec.ends, rec.mark, minus(w, g, rec.by, rec.at or rec.byf, den)), true
        if back == '' and stays <= now then number = 0 end
      end
    end
    record[VALUE] = verb ~= UNDO and struct.pack('<d', op[ENDS])
  end
  if state == HELD or state == SETTLED then record[CELL_ENDS], record[DIRTY] = op[ENDS], true end
  if changed then cell[OPEN_TEXT] = number > 0 and ';' .. digits(number) .. ':' .. digits(stays) .. back end
  if changed or number > 0 and kind == LIST then
    cell[DIRTY] = cell[DIRTY] or changed
    local life = kind == LIST and 0 or kind == COUNTER and op[SPAN] == FIXED and op[LIFE] or ends - now
    cell[CELL_ENDS] = cell[CELL_ENDS] or now + life
  end
  return admitted, value, ends, frac, prev, retry, state, held, heldf, cut, cutf
end
