-- Reservations: backends.Lapsing and backends.Record.
--
-- The open reservations of a cell stand behind its value and a ";"; those of a list stand so at a key of
-- their own. They are doubles: Lapsing.Number, Lapsing.Stays, and ends, mark, by and byf for each of
-- Lapsing.Back, where byf of a list is Record.At. A record is doubles, too: ends, if it is settled, or by,
-- mark, ends, number and byf, unless that is 0.

-- add is back (Lapsing.Back) with by and byf more at the entry of ends and mark, which goes when it comes
-- to 0; and the by and byf that the entry had.
local function add(back, ends, mark, den, by, byf)
  local low, high, rest, had, hadf, entry = 0, #back / 32, 0, 0, 0, ''
  while low < high do
    local middle = math.floor((low + high) / 2)
    local e, m, w, g = struct.unpack('<dddd', back, 32 * middle + 1)
    if e == ends and m == mark then
      low, high, rest, had, hadf = middle, middle, 1, w, g
    elseif e < ends or e == ends and m < mark then
      low = middle + 1
    else
      high = middle
    end
  end
  by, byf = plus(had, hadf, by, byf, den)
  if by > 0 or by == 0 and byf > 0 then entry = struct.pack('<dddd', ends, mark, by, byf) end
  return string.sub(back, 1, 32 * low) .. entry .. string.sub(back, 32 * (low + rest) + 1), had, hadf
end

-- takeBack makes of op the operation that gives back by of the hits of rec: Record.takeBack. If there
-- is nothing to give back, it makes of op the one that reads the cell: Op.Look.
local function takeBack(op, rec, by, byf)
  if not rec or rec == SETTLED or op[KIND] == COUNTER and rec.mark ~= op[OWN_MARK] then
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
  elseif not rec or rec == SETTLED then
    takeBack(op, rec)
    return rec and UNCHANGED or NO_HOLD
  end
  local more, moref = plus(by, byf, -rec.by, -rec.byf, op[DEN])
  if gives then
    takeBack(op, rec, rec.by, rec.byf)
  elseif more < 0 then
    takeBack(op, rec, plus(rec.by, rec.byf, -by, -byf, op[DEN]))
  else
    op[BY], op[BY_FRAC] = more, moref
    if (op[DEBT] or 0) == 0 and (op[DEBT_FRAC] or 0) == 0 then op[VERB] = FILL end
  end
  return SETTLED
end

-- recordOf is the record that is stored as text, SETTLED if it is settled, and nil if op finds none:
-- Lapsing.forgets and Record.foundBy. number and back are those of the open reservations.
local function recordOf(op, text, number, back)
  if not text then return end
  if #text == 8 then return op[NOW] < struct.unpack('<d', text) and SETTLED end
  local rec = { byf = 0 }
  rec.by, rec.mark, rec.ends, rec.number = struct.unpack('<dddd', text)
  local rest = #text > 32 and struct.unpack('<d', text, 33)
  if op[NOW] >= rec.ends then return end
  if op[KIND] == LIST then rec.at = rest else rec.byf = rest or 0 end
  local own = rec.mark == op[OWN_MARK]
  if op[KIND] ~= COUNTER or op[SPAN] ~= FIXED or own then
    if rec.number ~= number then return end
    if op[GIVE_BACK] == 1 then
      local _, by, byf = add(back, rec.ends, rec.mark, 1, 0, 0)
      if less(by, byf, rec.by, rec.at or rec.byf) then return end
    end
  end
  if op[KNOWN] == 1 then -- Record.isOver
    if op[KIND] == LIST and (rec.at or rec.mark) <= op[NOW] - op[WINDOW] then return end
    if op[KIND] == COUNTER and not own and (op[SPAN] ~= SLIDING or rec.mark < op[MARK] - 1) then return end
  end
  return rec
end

-- stepHold is step for an operation with a Hold: Lapsing.stepHold and Lapsing.settle. It
-- makes of op the operation that op comes to.
function stepHold(op)
  local now, kind, verb, named = op[NOW], op[KIND], op[VERB], op[RECORD] > 0
  local den = kind == LIST and 2 * MAX_VALUE or op[DEN] -- a time is below it
  local cell, record = load(KEYS[op[OPEN]]), named and load(KEYS[op[RECORD]], true)
  if not cell or named and not record then return BAD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 end
  local apply = kind == LIST and stepList or step
  local number, stays, back, changed = 0, 0, '', false
  local open = cell[OPEN_TEXT]
  if open then
    number, stays = struct.unpack('<dd', open)
    if #open > 16 then back = string.sub(open, 17) end
  end
  while op[GIVE_BACK] == 1 and back ~= '' do -- Lapsing.lapse
    local ends, mark, by, part = struct.unpack('<dddd', back)
    if ends > now then break end
    back, changed = string.sub(back, 33), true
    local on, rec = { unpack(op) }, { mark = mark }
    if kind == LIST then rec.at, part = part > 0 and part, 0 end
    on[RECORD], on[TIMES], on[VERB] = 0, 1, REFUND
    takeBack(on, rec, by, part)
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
  if state >= SETTLED then admitted = op[TIMES] end
  if state == HELD then
    local mark, ends = op[OWN_MARK], op[ENDS]
    by, byf = plus(by, byf, -cut, -cutf, den)
    if kind == LIST then byf = mark ~= op[DATE] and now or 0 end
    if number == 0 then number = op[NUMBER] end
    record[VALUE] = struct.pack(byf > 0 and '<ddddd' or '<dddd', by, mark, ends, number, byf)
    changed = true
    if op[GIVE_BACK] == 0 then
      stays = math.max(stays, ends)
    else
      back = add(back, ends, mark, den, by, byf)
    end
  elseif state == SETTLED then
    if rec then
      held, heldf = rec.by, rec.byf
      if op[BY] == 0 and op[BY_FRAC] == 0 and verb < REFUND then -- it is the same, or the window is over
        cut, cutf = plus(held, heldf, -by, -byf, den)
      end
      if rec.number == number and back ~= '' then -- Lapsing.take
        back, changed = add(back, rec.ends, rec.mark, den, -rec.by, -(rec.at or rec.byf)), true
        if back == '' and stays <= now then number = 0 end
      end
    end
    record[VALUE] = verb ~= UNDO and struct.pack('<d', op[ENDS])
  end
  if state == HELD or state == SETTLED then record[CELL_ENDS], record[DIRTY] = op[ENDS], true end
  if changed then cell[OPEN_TEXT] = number > 0 and struct.pack('<dd', number, stays) .. back end
  if changed or number > 0 and kind == LIST then
    cell[DIRTY] = cell[DIRTY] or changed
    local life = kind == LIST and 0 or kind == COUNTER and op[SPAN] == FIXED and op[LIFE] or ends - now
    cell[CELL_ENDS] = cell[CELL_ENDS] or now + life
  end
  return admitted, value, ends, frac, prev, retry, state, held, heldf, cut, cutf
end
