package settings

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
)

// Decoder turns flags and environment variables into values for kong. It collects
// every wrong value for Check, where kong would stop at the first.
type Decoder struct {
	wrong   map[string]Error // by setting
	flagged map[string]bool  // settings given on the command line
	ownName bool             // the program was not started as envoyproxy/ratelimit
}

// NewDecoder returns a Decoder for one kong.Parse.
func NewDecoder() *Decoder {
	return &Decoder{wrong: map[string]Error{}, flagged: map[string]bool{}}
}

// Options returns options with which a kong parser decodes settings by d and
// prints their help by describe. The argument is the default of BACKEND_TYPE. With memory, which
// envoyproxy/ratelimit does not have, a REDIS_URL of host:port means tcp.
func (d *Decoder) Options(backendType string) []kong.Option {
	d.ownName = backendType == "memory"
	return []kong.Option{
		kong.Vars{"backend_type": backendType},
		kong.KindMapper(reflect.Bool, boolMapper{d.mapper(decodeBool)}),
		kong.KindMapper(reflect.Int, d.mapper(number("a whole number", parseInt))),
		kong.KindMapper(reflect.Float64, d.mapper(number("a number", parseFloat))),
		kong.KindMapper(reflect.String, d.mapper(decodeString)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), d.mapper(number("a duration such as 150ms, 10s or 1h30m", time.ParseDuration))),
		kong.ValueFormatter(describe),
	}
}

// Check returns all problems of the settings as Errors, or nil. It also fills in
// values that depend on other settings.
func (d *Decoder) Check(s *Settings) error {
	for _, host := range []*string{&s.Server.Host, &s.Server.DebugHost, &s.GRPC.Host, &s.Admin.Host, &s.Metrics.StatsdHost} {
		*host = strings.Trim(*host, " []") // [::] is ::
	}
	wrong := slices.Concat(slices.Collect(maps.Values(d.wrong)), s.GRPC.conflicts(), s.Admin.conflicts(), s.Installation.conflicts(),
		s.Top.conflicts(), s.Limits.conflicts(), s.Rules.conflicts(), s.Tables.conflicts(), s.Backend.conflicts(), s.Kuadrant.conflicts(&s.Backend.Keys), d.checkBackend(s))
	wrong.require(s.Server.UseGRPC || s.Server.UseHTTP, "USE_GRPC", s.Server.UseGRPC, "true, because USE_HTTP is false and nobody could ask")
	if s.Rules.OverXDS() {
		wrong = append(wrong, s.XDS.conflicts()...)
	}
	_, statsd := os.LookupEnv("USE_STATSD")
	wrong = append(wrong, s.Metrics.settle(statsd || d.flagged["USE_STATSD"])...)
	return wrong.sorted()
}

// CheckPart returns all problems of a part of the settings as Errors, or nil. It is for
// commands that have no other settings. The part is a pointer to a struct.
func (d *Decoder) CheckPart(part interface{ conflicts() Errors }) error {
	wrong := part.conflicts()
	for _, variable := range envs(reflect.TypeOf(part).Elem(), "") {
		if e, ok := d.wrong[variable]; ok {
			wrong = append(wrong, e)
		}
	}
	return wrong.sorted()
}

// envs are the names of the variables of a struct with settings.
func envs(t reflect.Type, prefix string) (names []string) {
	for i := range t.NumField() {
		if field := t.Field(i); field.Type.Kind() == reflect.Struct {
			names = append(names, envs(field.Type, prefix+field.Tag.Get("envprefix"))...)
		} else {
			names = append(names, prefix+field.Tag.Get("env"))
		}
	}
	return names
}

// decode sets target from text, or returns which text would be right.
type decode func(text string, target reflect.Value, tag *kong.Tag) (want string)

func (d *Decoder) mapper(decode decode) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if _, isBool := ctx.Value.Mapper.(boolMapper); isBool && ctx.Scan.Peek().Type != kong.FlagValueToken {
			text = "true" // --shadow-mode
		} else if err := ctx.Scan.PopValueInto("a", &text); err != nil {
			return err
		}
		tag := ctx.Value.Tag
		if len(tag.Envs) == 0 { // not a setting but a flag of another command
			if want := decode(text, target, tag); want != "" {
				return fmt.Errorf("%q is wrong: want %s", text, want)
			}
			return nil
		}
		name := tag.Envs[0]
		if text == "" && Choices(tag) != nil || target.Kind() == reflect.Int && isServiceLink(name+"="+text) {
			text = ctx.Value.Default
		}
		// Kong reads the command line first, into values of its own, and then
		// variables and defaults into the settings. A flag takes precedence: with
		// a right flag a wrong variable is no problem.
		if flag := target.Addr() != ctx.Value.Target.Addr(); flag {
			d.flagged[name] = true
			delete(d.wrong, name)
		} else if d.flagged[name] {
			return nil
		}
		if want := decode(text, target, tag); want != "" {
			d.wrong[name] = Error{name, text, want}
		}
		return nil
	}
}

type boolMapper struct{ kong.MapperFunc }

func (boolMapper) IsBool() bool { return true }

func decodeBool(text string, target reflect.Value, _ *kong.Tag) string {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return "true or false"
	}
	target.SetBool(v)
	return ""
}

// number decodes the numbers that parse reads and that are in the range of the tag.
func number[V cmp.Ordered](want string, parse func(string) (V, error)) decode {
	return func(text string, target reflect.Value, tag *kong.Tag) string {
		v, err := parse(text)
		right := err == nil
		if low, failed := parse(tag.Get("min")); failed == nil {
			right = right && v >= low // NaN is not
		}
		if high, failed := parse(tag.Get("max")); failed == nil {
			right = right && v <= high
		}
		if !right {
			return want + within(tag)
		}
		target.Set(reflect.ValueOf(v).Convert(target.Type()))
		return ""
	}
}

// Numbers may be written as 0x10 and 010, as in envoyproxy/ratelimit.
func parseInt(text string) (int64, error)     { return strconv.ParseInt(text, 0, 64) }
func parseFloat(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

// decodeString sets a string. A choice may be in any case, and is set as its tag
// writes it.
func decodeString(text string, target reflect.Value, tag *kong.Tag) (want string) {
	choices := Choices(tag)
	if i := slices.IndexFunc(choices, func(choice string) bool { return strings.EqualFold(text, choice) }); i >= 0 {
		text = choices[i]
	} else if choices != nil {
		want = spelling.Either(choices)
	}
	target.SetString(text)
	return want
}

// Choices lists the values that a setting can have; nil if they are not a list.
func Choices(tag *kong.Tag) []string {
	switch s := tag.Get("oneof"); s {
	case "":
		return nil
	case "${strategies}":
		return slices.DeleteFunc(algorithms.Names(), func(name string) bool { return name == algorithms.Concurrency.String() })
	default:
		return strings.Split(s, ",")
	}
}

// within is the range of a tag in words: ", from 0 to 65535".
func within(tag *kong.Tag) string {
	low, high := tag.Get("min"), tag.Get("max")
	switch {
	case low != "" && high != "":
		return fmt.Sprintf(", from %s to %s", low, high)
	case low != "":
		return ", at least " + low
	case high != "":
		return ", at most " + high
	}
	return ""
}

// describe is the help text of a setting with its values, default and variable.
func describe(v *kong.Value) string {
	if len(v.Tag.Envs) == 0 {
		return v.Help
	}
	var facts []string
	if values := Values(v); values != "" {
		facts = append(facts, values)
	}
	if v.Default != "" {
		facts = append(facts, "default "+v.Default)
	}
	help := v.Help
	if len(facts) > 0 {
		help += " (" + strings.Join(facts, "; ") + ")"
	}
	return help + " $" + v.Tag.Envs[0]
}

// Values is the choices of a setting in words, or its unit and range.
func Values(v *kong.Value) string {
	if choices := Choices(v.Tag); choices != nil {
		return spelling.Either(choices)
	}
	var facts []string
	if unit := v.Tag.Get("unit"); unit != "" {
		facts = append(facts, "in "+unit)
	}
	if within := within(v.Tag); within != "" {
		facts = append(facts, strings.TrimPrefix(within, ", "))
	}
	return strings.Join(facts, ", ")
}
