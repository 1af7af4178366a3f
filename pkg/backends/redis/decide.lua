-- Operations that are decided together: backends.Batch.ApplyTogether.

local all = ARGV[2] == 'all' -- or nothing; else group by group
local origin, before = {}, {} -- the cells as they were before the batch, and before the descriptor

local function copy(cell)
  local c = {}
  for name, value in pairs(cell) do c[name] = value end
  return c
end

-- remembering is load, which keeps cells as they were.
local function remembering(load)
  return function(key, record)
    local cell = load(key, record)
    if cell and all and not origin[key] then origin[key] = copy(cell) end
    if cell and not before[key] then before[key] = copy(cell) end
    return cell
  end
end
load, loadList = remembering(load), loadList and remembering(loadList)

-- try is the reply to op, which stays as it is.
local function try(op)
  local apply = op[HOLD] == 1 and stepHold or op[VERB] == RESET and reset or op[KIND] == LIST and stepList or step
  return { apply({ unpack(op) }) }
end

-- charge is how often op, whose trial has this reply, is charged: Batch.Charges, if its descriptor and
-- its batch pass or not. It also returns whether it is charged as it was tried.
local function charge(op, reply, passes)
  local times, admitted = op[TIMES], reply[ADMITTED]
  if admitted < 0 then return 0, true end
  local overdraws = op[OVERDRAWS] == 1 and (op[BY] > 0 or op[BY_FRAC] > 0) and ((op[RECORD] or 0) == 0 or op[KNOWN] == 1)
  local tried = (op[VERB] == COUNT or overdraws) and times or admitted
  if not passes then admitted = 0 end
  local settles = reply[STATE] >= SETTLED
  if overdraws or settles or op[VERB] == COUNT and reply[ADMITTED] < times then admitted = times end
  return admitted, admitted == tried
end

-- settled is the operation that charges op so often: Batch.settled.
local function settled(op, times, settles)
  local on = { unpack(op) }
  if times > 0 and (op[OVERDRAWS] == 1 or settles) then return on end
  on[MAX] = NO_ROOM
  if times > 0 then
    on[MAX], on[TIMES] = NO_MAX, times
  elseif op[VERB] == REFUND or op[VERB] == UNDO then
    on[VERB], on[BY], on[BY_FRAC], on[MAX], on[TIMES], on[RECORD], on[HOLD] = CHARGE, 0, 0, NO_MAX, 1, 0, op[GIVE_BACK]
  end
  if op[VERB] == COUNT then on[VERB] = CHARGE end
  return on
end

-- settle charges the operations from first to last as often as they have to be, with the cells as they
-- were before their trial, unless that has charged them so.
local function settle(ops, replies, first, last, passes, was)
  local same, charges = true, {}
  for i = first, last do
    local times, tried = charge(ops[i], replies[i], passes)
    charges[i], same = times, same and tried
  end
  if same then return end
  for key, cell in pairs(was) do loaded[key] = cell end
  before = {}
  for i = first, last do
    local tried = replies[i]
    local reply = try(settled(ops[i], charges[i], tried[STATE] >= SETTLED))
    reply[ADMITTED], reply[RETRY_AT], replies[i] = tried[ADMITTED], tried[RETRY_AT], reply
  end
end

function applyTogether(ops)
  local replies = {}
  local first, refused, quotas, refusals = 1, false, 0, 0
  while first <= #ops do
    local group, role, last, passes = ops[first][GROUP], ops[first][ROLE], first, true
    before = {}
    while group > 0 and ops[last + 1] and ops[last + 1][GROUP] == group do last = last + 1 end
    for i = first, last do
      replies[i] = try(ops[i])
      passes = passes and replies[i][ADMITTED] == ops[i][TIMES]
    end
    settle(ops, replies, first, last, passes or group == 0, before)
    if role == QUOTA then
      quotas, refusals = quotas + 1, passes and refusals or refusals + 1
    elseif role == FIRM then
      refused = refused or not passes
    end
    first = last + 1
  end
  if all and (refused or quotas > 0 and refusals == quotas) then settle(ops, replies, 1, #ops, false, origin) end
  for i, reply in ipairs(replies) do replies[i] = struct.pack(REPLY, unpack(reply)) end
  return replies
end
