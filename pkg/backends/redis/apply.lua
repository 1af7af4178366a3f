-- Applies a batch of operations, as the files before it define: each by itself, or together.
--
-- KEYS     the keys of cells, of the open reservations of lists, and of records
-- ARGV[1]  the operations, packed (see pack in apply.go)
-- ARGV[2]  'all' if they are decided all or nothing
-- Returns  the replies as little-endian doubles: the numbers of apply.go

local packed, at, n, ops, now, answer, answers = ARGV[1], 1, 0, applyTogether and {}, nil, nil, nil
while at <= #packed do
  local op = { struct.unpack(OPERATION, packed, at) }
  n, at, now = n + 1, op[#op], op[NOW]
  if ops then
    ops[n] = op
  else
    if op[VERB] == RESET then -- also a key that holds something else
      local key, open = KEYS[op[KEY]], KEYS[op[OPEN]]
      redis.call('DEL', key, open)
      loaded[key], loaded[open], op[VERB] = nil, nil, CHARGE
    end
    local apply = (op[GIVE_BACK] == 1 or (op[RECORD] or 0) > 0) and stepHold or op[KIND] == LIST and stepList or step
    local reply = struct.pack(REPLY, apply(op))
    if answer then
      answers = answers or { answer, false, false, false }
      answers[n] = reply
    else
      answer = reply
    end
  end
end
if ops then answers = applyTogether(ops) end

-- Each cell is written that has changed. It lives until its reservations have ended, too. SET has the
-- key's lifetime, so PTTL is needed only for a key that is not written: one that has lost its expiry
-- (PERSIST, a restored dump) gets a new one.
for key, cell in next, loaded do
  local ends = cell and not cell.length and cell[CELL_ENDS]
  if ends then
    local value, second, third, open = cell[VALUE], cell[SECOND], cell[THIRD], cell[OPEN_TEXT]
    if open then ends = math.max(ends, (struct.unpack('<d', open, #open - 31))) end
    local life = ends - now + 999
    life = (life - life % 1000) / 1000 + GRACE
    if life < 2147483648 then life = string.format('%d', life) end -- Redis takes longer to turn numbers into digits
    if not cell[DIRTY] then
      if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, life) end
    elseif value or open then
      value = value or 0
      if second then
        local form = cell[FOURTH] and '%.0f:%.0f:%.0f:%.0f' or third and '%.0f:%.0f:%.0f' or '%.0f:%.0f'
        value = string.format(form, value, second, third, cell[FOURTH])
      elseif type(value) == 'number' then
        local low = value % 1000000000 -- integers of 32 bits are written faster
        local high = (value - low) / 1000000000
        value = high > 0 and string.format('%d%09d', high, low) or string.format('%.0f', value)
      end
      redis.call('SET', key, open and value .. ';' .. open or value, 'PX', life)
    else
      redis.call('DEL', key)
    end
  elseif cell and cell.life then
    storeList(key, cell)
  end
end
return answers and table.concat(answers, '', 1, n) or answer
