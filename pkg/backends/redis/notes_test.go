package redis_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/test/backendtest"
)

func TestNotes(t *testing.T) {
	server := testenv.Redis(t)
	side, sentinels := client(t, server), testenv.Sentinel(t)
	for name, o := range map[string]redis.Options{
		"redis":    {URL: server.Addr},
		"valkey":   {URL: testenv.Valkey(t).Addr},
		"sentinel": {Type: "sentinel", URL: sentinels.MasterName + "," + strings.Join(sentinels.Addrs(), ",")},
		"cluster":  {Type: "cluster", URL: strings.Join(testenv.RedisCluster(t, 3, 0).Addrs(), ",")},
	} {
		t.Run(name, func(t *testing.T) { backendtest.Notes(t, openPatiently(t, o), "rls:grants") })
	}
	s := openPatiently(t, redis.Options{URL: server.Addr})
	for _, lasts := range []time.Duration{time.Hour, time.Minute} { // the longer one counts
		if _, _, err := s.ChangeNotes(t.Context(), "n", backends.NotesChange{Set: lasts.String(), Text: "x", Most: 9, Until: time.UnixMicro(s.Now()).Add(lasts)}); err != nil {
			t.Fatal(err)
		}
	}
	if left := side.PTTL(t.Context(), "n").Val(); left < 30*time.Minute || left > 2*time.Hour {
		t.Errorf("the key lives for %v more", left)
	}
	many := map[string]string{"version": "v"}
	for i := range 2500 { // several pages
		many[fmt.Sprint("field ", i)] = strings.Repeat("x", 100)
	}
	if err := side.HSet(t.Context(), "many", many).Err(); err != nil {
		t.Fatal(err)
	}
	delete(many, "version")
	version, texts, err := s.Notes(t.Context(), "many", backends.NotesBound{Fields: 2500, Bytes: 1 << 20})
	if err != nil || version != "v" || !maps.Equal(texts, many) {
		t.Errorf("of 2,500 fields %d are read: %q, %v", len(texts), version, err)
	}
	for _, most := range []backends.NotesBound{{Fields: 2000, Bytes: 1 << 20}, {Fields: 2500, Bytes: 200_000}} {
		if _, _, err := s.Notes(t.Context(), "many", most); err == nil {
			t.Errorf("%+v is no bound", most)
		}
	}
	if err := side.Set(t.Context(), "other", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.NotesVersion(t.Context(), "other"); err == nil || errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("a key that is no hash: %v", err)
	}
}
