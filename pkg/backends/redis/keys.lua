-- The keys that a call has loaded, and how cells are stored.
--
-- A counter is "count", or "count:until" where the window starts at a hit; a meter is "whole" or
-- "whole:frac", less its shift; a counter that carries its surplus is "count:window", and one of a
-- sliding window "count:window:count of the window before", after a grant with ":count before it".
-- Credit makes a count negative; a meter with credit is "-whole:frac:until". Behind a ";" stand the open
-- reservations (hold.lua). A cell's end is judged by the caller's clock (NOW), not by whether Redis has
-- expired the key. All numbers stay below 2^53, where doubles are exact.
--
-- Redis runs the files of a call from the top each time, where each function, each local that a
-- function uses and each byte of a table costs the call. So a call gets the files that it needs, and
-- its tables have places in place of names: words in capitals, which apply.go replaces by numbers.

-- The cells, lists and records, by key, with room for the two keys that most calls have.
local loaded = { [KEYS[1]] = false, [KEYS[#KEYS]] = false }
local load, step, furtherVerb                    -- cells.lua and verbs.lua define them
local stepList, storeList                        -- list.lua
local stepHold, applyTogether                    -- hold.lua and decide.lua
