-- Operations that are decided together: backends.Batch.ApplyTogether.

local all = ARGV[2] == 'all' -- or nothing; else group by group

local function copy(cell)
  local c = {}
  for name, value in pairs(cell) do c[name] = value end
  return c
end

-- try is the reply to op, which stays as it is. was gets the cells of op as they were, false for those
-- that were not loaded.
local function try(op, was)
  for _, key in ipairs({ KEYS[op[KEY]], KEYS[op[OPEN]], KEYS[op[RECORD]] }) do
    if was[key] == nil then was[key] = loaded[key] and copy(loaded[key]) or false end
  end
  local apply = (op[GIVE_BACK] == 1 or (op[RECORD] or 0) > 0) and stepHold or op[KIND] == LIST and stepList or step
  return { apply({ unpack(op) }) }
end

-- charged is whether op, whose trial has this reply, is charged: Batch.Charged, if its descriptor and
-- its batch pass or not. It also returns whether the trial has charged it so.
local function charged(op, reply, passes)
  local fits, counts = reply[ADMITTED] > 0, op[VERB] == COUNT
  if reply[ADMITTED] < 0 then return false, true end
  local overdraws = op[OVERDRAWS] == 1 and (op[BY] > 0 or op[BY_FRAC] > 0) and ((op[RECORD] or 0) == 0 or op[KNOWN] == 1)
  local is = overdraws or reply[STATE] >= SETTLED or counts and not fits or passes and fits
  return is, is == (overdraws or counts or fits)
end

-- settled is the operation that charges op, or does not: Batch.settled.
local function settled(op, charged, settles)
  local on = { unpack(op) }
  if charged and (op[OVERDRAWS] == 1 or settles) then return on end
  on[MAX] = charged and NO_MAX or NO_ROOM
  if not charged and (op[VERB] == REFUND or op[VERB] == UNDO) then
    on[VERB], on[BY], on[BY_FRAC], on[MAX], on[RECORD] = CHARGE, 0, 0, NO_MAX, 0
  end
  if op[VERB] == COUNT then on[VERB] = CHARGE end
  return on
end

-- settle charges the operations from first to last that have to be, with the cells as they were before
-- their trial, unless that has charged just these.
local function settle(ops, replies, first, last, passes, was)
  local same, charges = true, {}
  for i = first, last do
    local is, tried = charged(ops[i], replies[i], passes)
    charges[i], same = is, same and tried
  end
  if same then return end
  for key, cell in pairs(was) do loaded[key] = cell end
  for i = first, last do
    local tried = replies[i]
    local reply = try(settled(ops[i], charges[i], tried[STATE] >= SETTLED), {})
    reply[ADMITTED], reply[RETRY_AT], replies[i] = tried[ADMITTED], tried[RETRY_AT], reply
  end
end

function applyTogether(ops)
  local replies = {}
  local first, refused, quotas, refusals = 1, false, 0, 0
  while first <= #ops do
    local group, role, last, passes, before = ops[first][GROUP], ops[first][ROLE], first, true, {}
    while group > 0 and ops[last + 1] and ops[last + 1][GROUP] == group do last = last + 1 end
    for i = first, last do
      replies[i] = try(ops[i], before)
      passes = passes and replies[i][ADMITTED] > 0
    end
    settle(ops, replies, first, last, passes or group == 0, before)
    if role == QUOTA then
      quotas, refusals = quotas + 1, passes and refusals or refusals + 1
    elseif role == FIRM then
      refused = refused or not passes
    end
    first = last + 1
  end
  if all and (refused or quotas > 0 and refusals == quotas) then
    local unloaded = {} -- Redis still has the cells as they were before the batch
    for key in pairs(loaded) do unloaded[key] = false end
    settle(ops, replies, 1, #ops, false, unloaded)
  end
  for i, reply in ipairs(replies) do replies[i] = struct.pack(REPLY, unpack(reply)) end
  return replies
end
