package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/backendtest"
	"example.org/rls/pkg/backends/redis"
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
		if err := s.ChangeNotes(t.Context(), "n", backends.NotesChange{Set: lasts.String(), Text: "x", Most: 9, Until: time.UnixMicro(s.Now()).Add(lasts)}); err != nil {
			t.Fatal(err)
		}
	}
	if left := side.PTTL(t.Context(), "n").Val(); left < 30*time.Minute || left > 2*time.Hour {
		t.Errorf("the key lives for %v more", left)
	}
	if err := side.Set(t.Context(), "other", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.NotesVersion(t.Context(), "other"); err == nil || errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("a key that is no hash: %v", err)
	}
}
