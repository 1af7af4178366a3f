// Package statsd sends values to a server of statsd or DogStatsD, in lines that the server reads whole.
package statsd

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Sink sends to a server of statsd or DogStatsD.
type Sink interface {
	// Send sends a value at once or with Flush, for which it connects where needed, and reports
	// whether the server can be sent to. A timing stands for so many values, otherwise times is 1.
	Send(of Kind, path string, value, times uint64) bool
	Flush()
	Close()
}

// Kind says what a value is, by its name in statsd.
type Kind string

const (
	Growth Kind = "c" // by how much a counter grew
	Level  Kind = "g"
	Timing Kind = "ms" // the milliseconds that a call took
)

// Characters that become _: besides control characters those that separate the parts of a line.
var (
	// inLines ends a name or a line, or starts a tag: white space, and the separators of statsd
	// (: |), of its sampling rate (@) and of the tag formats of DogStatsD, InfluxDB, Librato,
	// SignalFx and Graphite (# , ; [ ]).
	inLines = regexp.MustCompile(`[\p{Cc}\p{Z}:|@#,;\[\]]`)
	// inTags is as in envoyproxy/ratelimit: the separators of statsd, and dots.
	inTags = regexp.MustCompile(`[\p{Cc}.:|,#]`)
	// inDogTags is for the values of tags of DogStatsD, which may have dots and colons.
	inDogTags = regexp.MustCompile(`[\p{Cc}|,#]`)
)

func without(characters *regexp.Regexp, s string) string {
	return characters.ReplaceAllLiteralString(s, "_")
}

// Name is path as a name that a server reads whole. The dot of ".__", which starts a tag in
// the format of envoyproxy/ratelimit, becomes _ as well.
func Name(path string) string {
	return strings.ReplaceAll(without(inLines, path), ".__", "___")
}

// sortedTags calls add for each tag that has a name and a value, in the order
// of the names.
func sortedTags(tags map[string]string, add func(key, value string)) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key != "" && tags[key] != "" {
			add(without(inTags, key), without(inTags, tags[key]))
		}
	}
}
