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

// readNotes returns the cursor ARGV[1] moved on, and fields and texts of a hash by turns, or the number of
// their bytes if it is above ARGV[2]. Other calls come between, because a hash may be large.
var readNotes = goredis.NewScript(`
local page, bytes = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 1000), 0
for _, text in ipairs(page[2]) do bytes = bytes + #text end
if bytes > tonumber(ARGV[2]) then return {bytes} end
return page`)

// changeNotes sets the field ARGV[4] to the text ARGV[5], unless ARGV[4] is empty. From ARGV[6] on there are
// pairs of a field and a text: each field that has the text beside it is removed. ARGV[1] is the new version,
// ARGV[2] the most fields, ARGV[3] the lifetime in ms. It returns the version before and after, or nil if there
// is no room.
var changeNotes = goredis.NewScript(`
local key, field = KEYS[1], ARGV[4]
local before = redis.call('HGET', key, 'version') or ''
local left = redis.call('HLEN', key) - redis.call('HEXISTS', key, 'version')
local remove = {}
for i = 6, #ARGV, 2 do
  if ARGV[i] ~= field and redis.call('HGET', key, ARGV[i]) == ARGV[i + 1] then remove[#remove + 1] = ARGV[i] end
end
left = left - #remove
if field ~= '' then
  left = left + 1 - redis.call('HEXISTS', key, field)
  if left > tonumber(ARGV[2]) then return false end
end
for _, gone in ipairs(remove) do redis.call('HDEL', key, gone) end
if left == 0 then
  redis.call('DEL', key)
  return {before, ''}
end
local lives = redis.call('PTTL', key)
if field ~= '' then redis.call('HSET', key, field, ARGV[5]) end
redis.call('HSET', key, 'version', ARGV[1])
redis.call('PEXPIRE', key, math.max(lives, tonumber(ARGV[3])))
return {before, ARGV[1]}`)

// NotesVersion implements backends.Notes.
func (s *Store) NotesVersion(ctx context.Context, name string) (version string, err error) {
	err = s.note(ctx, func(ctx context.Context, c goredis.UniversalClient) error {
		version, err = c.HGet(ctx, name, versionField).Result()
		return err
	})
	return version, err
}

// Notes implements backends.Notes.
func (s *Store) Notes(ctx context.Context, name string, most backends.NotesBound) (string, map[string]string, error) {
	version, err := s.NotesVersion(ctx, name)
	if err != nil {
		return "", nil, err
	}
	texts, bytes := map[string]string{}, 0
	for cursor := any("0"); ; {
		var page []any
		err := s.note(ctx, func(ctx context.Context, c goredis.UniversalClient) (err error) {
			page, err = readNotes.Run(ctx, c, []string{name}, cursor, most.Bytes).Slice()
			return err
		})
		if err != nil {
			return "", nil, err
		}
		if len(page) == 2 {
			all, _ := page[1].([]any)
			for i := 0; i+1 < len(all); i += 2 {
				field, _ := all[i].(string)
				text, _ := all[i+1].(string)
				bytes += len(field) + len(text)
				texts[field] = text
			}
		}
		if len(page) != 2 || len(texts) > most.Fields+1 || bytes > most.Bytes {
			return "", nil, fmt.Errorf("redis: the hash %s has more than %d fields or %d bytes", name, most.Fields, most.Bytes)
		}
		if cursor = page[0]; cursor == "0" {
			delete(texts, versionField)
			return version, texts, nil
		}
	}
}

// ChangeNotes implements backends.Notes.
func (s *Store) ChangeNotes(ctx context.Context, name string, c backends.NotesChange) (before, after string, err error) {
	life := max(1, c.Until.UnixMilli()-s.Now()/1000+1)
	args := []any{backends.NewVersion(), c.Most, life, c.Set, c.Text}
	for field, text := range c.Remove {
		args = append(args, field, text)
	}
	var versions []string
	err = s.note(ctx, func(ctx context.Context, client goredis.UniversalClient) (err error) {
		versions, err = changeNotes.Run(ctx, client, []string{name}, args...).StringSlice()
		return err
	})
	switch {
	case err != nil:
		return "", "", err
	case len(versions) != 2:
		return "", "", backends.ErrNotesFull
	}
	return versions[0], versions[1], nil
}

// note asks the server that has the hash of a name, beside the calls of Apply. Its error wraps
// backends.ErrUnavailable unless the server has answered that it does not take the command.
func (s *Store) note(ctx context.Context, ask func(context.Context, goredis.UniversalClient) error) error {
	ctx, cancel := backends.Within(ctx, s.target.Timeout)
	defer cancel()
	err := ask(ctx, s.servers.routed())
	if err == nil || errors.Is(err, goredis.Nil) { // Nil: there is no such field, or no room for a change
		return nil
	}
	s.servers.failed(err)
	if !lane.Answered(err) || lane.CannotServe(err) {
		err = unavailable(err)
	}
	return fmt.Errorf("redis: notes: %w", err)
}
