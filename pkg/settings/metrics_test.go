package settings_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/settings"
)

// Metrics go to one place: to statsd unless another place is set. Two places that are
// set are refused.
func TestOnePlaceForMetrics(t *testing.T) {
	type places struct{ Prometheus, Statsd, Dog bool }
	for _, tt := range []struct {
		name  string
		set   map[string]string
		want  places
		wrong []string
	}{
		{"nothing said", nil, places{Statsd: true}, nil},
		{"Prometheus", map[string]string{"USE_PROMETHEUS": "true"}, places{Prometheus: true}, nil},
		{"DogStatsD", map[string]string{"USE_DOG_STATSD": "true"}, places{Dog: true}, nil},
		{"nowhere", map[string]string{"USE_STATSD": "false"}, places{}, nil},
		{"no statistics", map[string]string{"DISABLE_STATS": "true", "USE_PROMETHEUS": "true", "USE_STATSD": "true"}, places{}, nil},
		{"two", map[string]string{"USE_PROMETHEUS": "true", "USE_STATSD": "true"}, places{}, []string{"USE_STATSD"}},
		{"other two", map[string]string{"USE_DOG_STATSD": "true", "USE_STATSD": "true"}, places{}, []string{"USE_STATSD"}},
		{"two and the default", map[string]string{"USE_PROMETHEUS": "true", "USE_DOG_STATSD": "true"}, places{}, []string{"USE_DOG_STATSD"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.set {
				t.Setenv(name, value)
			}
			s, err := parse(t)
			var names []string
			for _, e := range problems(t, err) {
				names = append(names, e.Setting)
			}
			if diff := cmp.Diff(tt.wrong, names); diff != "" {
				t.Fatal(diff)
			}
			if got := (places{s.Metrics.UsePrometheus, s.Metrics.UseStatsd, s.Metrics.UseDogStatsd}); err == nil && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestTags(t *testing.T) {
	t.Setenv("EXTRA_TAGS", "a:1,b:c:d")
	t.Setenv("DOG_STATSD_MOGRIFIER_X_PATTERN", "^p$")
	t.Setenv("DOG_STATSD_MOGRIFIER_X_NAME", "n")
	t.Setenv("DOG_STATSD_MOGRIFIER_X_TAGS", "k:$1,l:2")
	s, err := parse(t)
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "c:d"}, s.Metrics.Tags()); diff != "" || err != nil {
		t.Error(err, diff)
	}
	want := settings.Mogrifier{Prefix: "DOG_STATSD_MOGRIFIER_X", Pattern: "^p$", Name: "n", Tags: map[string]string{"k": "$1", "l": "2"}}
	for _, name := range []string{"X", "x"} { // variables are in upper case, as in envoyproxy/ratelimit
		if diff := cmp.Diff(want, s.Metrics.Mogrifier(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for list, want := range map[string]bool{"a": false, "a:1,,b:2": false, "a:": true, ":b": true, "a:1, b-c:2": true} {
		t.Setenv("EXTRA_TAGS", list)
		if _, err := parse(t); want != (err == nil) {
			t.Errorf("EXTRA_TAGS=%s: %v", list, err)
		}
	}
}
