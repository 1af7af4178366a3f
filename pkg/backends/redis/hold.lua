-- Reservations: backends.Lapsing and backends.Record.
--
-- The open reservations of a cell stand behind its value and a ";"; those of a list stand so at a key of
-- their own. They are doubles: Lapsing.Number, and ends, mark, by and byf for each of Lapsing.Held, where
-- byf of a list is Record.At. A record is doubles, too: ends, if it is settled, or by, mark, ends, number
-- and byf, unless that is 0.

-- add is open (Lapsing.Held) with by and part more at the entry of a record with that end and mark, which
-- goes when it comes to 0; and whether the entry had as much.
local function add(op, open, ends, mark, by, part)
  local low, high, size, had, rest, entry, den = 0, #open / 32, 0, 0, 0, '', op[DEN]
  if op[KIND] == LIST then den = 2 * MAX_VALUE end -- a time is below it
  if op[GIVE_BACK] == 0 then -- Op.heldAs
    local unit = math.max(math.floor((op[ENDS] - op[NOW]) / 64), 1)
    ends, mark = math.ceil(ends / unit) * unit, 0
    if op[KIND] == LIST then part = 0 end
  end
  while low < high do
    local middle = math.floor((low + high) / 2)
    local e, m, w, g = struct.unpack('<dddd', open, 32 * middle + 1)
    if e == ends and m == mark then
      low, high, size, had, rest = middle, middle, 1, w, g
    elseif e < ends or e == ends and m < mark then
      low = middle + 1
    else
      high = middle
    end
  end
  local has = not less(had, rest, by, part)
  by, part = plus(had, rest, by, part, den)
  if by > 0 or by == 0 and part > 0 then entry = struct.pack('<dddd', ends, mark, by, part) end
  if size == #open / 32 then return entry, has end
  return string.sub(open, 1, 32 * low) .. entry .. string.sub(open, 32 * (low + size) + 1), has
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
-- Lapsing.forgets and Record.foundBy. number and open are those of the open reservations.
local function recordOf(op, text, number, open)
  if not text then return end
  if #text == 8 then return op[NOW] < struct.unpack('<d', text) and SETTLED end
  local by, mark, ends, from = struct.unpack('<dddd', text)
  local rec = { by = by, byf = 0, mark = mark, at = false, ends = ends, number = from }
  local rest, own = #text > 32 and struct.unpack('<d', text, 33), mark == op[OWN_MARK]
  if op[NOW] >= ends then return end
  if op[KIND] == LIST then rec.at = rest else rec.byf = rest or 0 end
  if op[KIND] ~= COUNTER or op[SPAN] ~= FIXED or own then
    if from ~= number then return end
    if op[GIVE_BACK] == 1 and not select(2, add(op, open, ends, mark, by, rec.at or rec.byf)) then return end
  end
  if op[KNOWN] == 1 then -- Record.isOver
    if op[KIND] == LIST and (rec.at or mark) <= op[NOW] - op[WINDOW] then return end
    if op[KIND] == COUNTER and not own and (op[SPAN] ~= SLIDING or mark < op[MARK] - 1) then return end
  end
  return rec
end

-- stepHold is step for an operation with a Hold: Lapsing.stepHold and Lapsing.settle. It
-- makes of op the operation that op comes to.
function stepHold(op)
  local now, kind, verb, named = op[NOW], op[KIND], op[VERB], op[RECORD] > 0
  local cell, record = load(KEYS[op[OPEN]]), named and load(KEYS[op[RECORD]], true)
  if not cell or named and not record then return BAD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 end
  local apply = kind == LIST and stepList or step
  local number, open, changed = 0, cell[OPEN_TEXT] or '', false
  if open ~= '' then number, open = struct.unpack('<d', open), string.sub(open, 9) end
  while open ~= '' and struct.unpack('<d', open) <= now do -- Lapsing.lapse
    local _, mark, by, part = struct.unpack('<dddd', open)
    open, changed = string.sub(open, 33), true
    if op[GIVE_BACK] == 1 then
      local on, rec = { unpack(op) }, { mark = mark }
      if kind == LIST then rec.at, part = part > 0 and part, 0 end
      on[RECORD], on[TIMES], on[VERB] = 0, 1, REFUND
      takeBack(on, rec, by, part)
      apply(on)
    end
  end
  if open == '' then number = 0 end

  local by, byf, state, rec, held, heldf = op[BY], op[BY_FRAC], NO_HOLD, nil, 0, 0
  if named then
    rec = recordOf(op, record[VALUE], number, open)
    state = against(op, rec)
  end
  local admitted, value, ends, frac, prev, retry, _, _, _, cut, cutf = apply(op)
  if admitted < 0 then return BAD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 end
  if state == HELD and admitted == 0 then state = NO_HOLD end
  if state >= SETTLED then admitted = op[TIMES] end
  if state == HELD then
    by, byf = plus(by, byf, -cut, -cutf, op[DEN])
    local mark, ends = op[OWN_MARK], op[ENDS]
    if kind == LIST then byf = mark ~= op[DATE] and now or 0 end
    if number == 0 then number = op[NUMBER] end
    record[VALUE] = struct.pack(byf > 0 and '<ddddd' or '<dddd', by, mark, ends, number, byf)
    open, changed = add(op, open, ends, mark, by, byf), true
  elseif state == SETTLED then
    if rec then
      held, heldf = rec.by, rec.byf
      if op[BY] == 0 and op[BY_FRAC] == 0 and verb < REFUND then -- it is the same, or the window is over
        cut, cutf = plus(held, heldf, -by, -byf, op[DEN])
      end
      if rec.number == number then -- Lapsing.take
        open, changed = add(op, open, rec.ends, rec.mark, -held, -(rec.at or heldf)), true
      end
    end
    record[VALUE] = verb ~= UNDO and struct.pack('<d', op[ENDS])
  end
  if state == HELD or state == SETTLED then record[CELL_ENDS], record[DIRTY] = op[ENDS], true end
  if changed then cell[OPEN_TEXT] = open ~= '' and struct.pack('<d', number) .. open end
  if changed or open ~= '' and kind == LIST then
    cell[DIRTY] = cell[DIRTY] or changed
    local life = kind == LIST and 0 or kind == COUNTER and op[SPAN] == FIXED and op[LIFE] or ends - now
    cell[CELL_ENDS] = cell[CELL_ENDS] or now + life
  end
  return admitted, value, ends, frac, prev, retry, state, held, heldf, cut, cutf
end
