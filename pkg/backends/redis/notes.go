package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis/lane"
)

var _ backends.Notes = (*Store)(nil)

// versionField is the field of a hash that has its version. The fields of notes have a space.
const versionField = "version"

// readNotes returns the fields and texts of a hash by turns, or the numbers of its fields and bytes if
// these are too many for the caller. A hash is read only after a change.
var readNotes = goredis.NewScript(`
local fields, bytes = redis.call('HLEN', KEYS[1]), 0
if fields > tonumber(ARGV[1]) then return {fields} end
local all = redis.call('HGETALL', KEYS[1])
for _, text in ipairs(all) do bytes = bytes + #text end
if bytes > tonumber(ARGV[2]) then return {bytes} end
return all`)

// changeNotes sets the field ARGV[4] to ARGV[5], unless that field is empty, and removes those of the fields
// after it that have the text behind each. ARGV[1] is the new version, ARGV[2] the most fields, ARGV[3] the
// lifetime in ms. It returns 0 if there is no room.
var changeNotes = goredis.NewScript(`
local key, field = KEYS[1], ARGV[4]
local left = redis.call('HLEN', key) - redis.call('HEXISTS', key, 'version')
local remove = {}
for i = 6, #ARGV, 2 do
  if ARGV[i] ~= field and redis.call('HGET', key, ARGV[i]) == ARGV[i + 1] then remove[#remove + 1] = ARGV[i] end
end
left = left - #remove
if field ~= '' then
  left = left + 1 - redis.call('HEXISTS', key, field)
  if left > tonumber(ARGV[2]) then return 0 end
end
for _, gone in ipairs(remove) do redis.call('HDEL', key, gone) end
if left == 0 then
  redis.call('DEL', key)
  return 1
end
local lives = redis.call('PTTL', key)
if field ~= '' then redis.call('HSET', key, field, ARGV[5]) end
redis.call('HSET', key, 'version', ARGV[1])
redis.call('PEXPIRE', key, math.max(lives, tonumber(ARGV[3])))
return 1`)

// NotesVersion implements backends.Notes.
func (s *Store) NotesVersion(ctx context.Context, name string) (version string, err error) {
	err = s.note(ctx, func(ctx context.Context, c goredis.UniversalClient) error {
		version, err = c.HGet(ctx, name, versionField).Result()
		if errors.Is(err, goredis.Nil) {
			return nil
		}
		return err
	})
	return version, err
}

// Notes implements backends.Notes.
func (s *Store) Notes(ctx context.Context, name string, most backends.NotesBound) (version string, texts map[string]string, err error) {
	var all []any
	err = s.note(ctx, func(ctx context.Context, c goredis.UniversalClient) error {
		all, err = readNotes.Run(ctx, c, []string{name}, most.Fields+1, most.Bytes).Slice()
		return err
	})
	if err != nil {
		return "", nil, err
	}
	if len(all) == 1 {
		return "", nil, fmt.Errorf("redis: the hash %s has %v fields or bytes: want at most %d fields and %d bytes",
			name, all[0], most.Fields, most.Bytes)
	}
	texts = make(map[string]string, len(all)/2)
	for i := 0; i+1 < len(all); i += 2 {
		field, _ := all[i].(string)
		texts[field], _ = all[i+1].(string)
	}
	version = texts[versionField]
	delete(texts, versionField)
	return version, texts, nil
}

// ChangeNotes implements backends.Notes.
func (s *Store) ChangeNotes(ctx context.Context, name string, c backends.NotesChange) error {
	life := max(1, c.Until.UnixMilli()-s.Now()/1000+1)
	args := []any{backends.NewVersion(), c.Most, life, c.Set, c.Text}
	for field, text := range c.Remove {
		args = append(args, field, text)
	}
	done := 0
	err := s.note(ctx, func(ctx context.Context, client goredis.UniversalClient) (err error) {
		done, err = changeNotes.Run(ctx, client, []string{name}, args...).Int()
		return err
	})
	if err == nil && done == 0 {
		return backends.ErrNotesFull
	}
	return err
}

// note asks the server that has the hash of a name, beside the calls of Apply. Its error wraps
// backends.ErrUnavailable unless the server has answered that it does not take the command.
func (s *Store) note(ctx context.Context, ask func(context.Context, goredis.UniversalClient) error) error {
	ctx, cancel := backends.Within(ctx, s.target.Timeout)
	defer cancel()
	err := ask(ctx, s.servers.routed())
	if err == nil {
		return nil
	}
	s.servers.failed(err)
	if !lane.Answered(err) || lane.CannotServe(err) {
		err = unavailable(err)
	}
	return fmt.Errorf("redis: notes: %w", err)
}
