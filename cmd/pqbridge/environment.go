package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/cmd/internal/spelling"
)

// loadConfig reads the configuration from the environment. The error joins all problems:
// unknown variables, values that cannot be parsed, and what validate finds.
func loadConfig(dev bool) (*config, error) {
	problems := unknownVariables(os.Environ())
	c := defaultConfig()
	fields := reflect.ValueOf(c).Elem()
	for i, v := range variables() {
		text, set := os.LookupEnv(v.name)
		if !set || isServiceLink(v.name, text) {
			continue
		}
		if err := parse(fields.Field(i), text); err != nil {
			problems = append(problems, fmt.Errorf("%s is %q: want %w", v.name, text, err))
		}
	}

	problems = append(problems, c.validate(), validateDev(dev))
	return c, errors.Join(problems...)
}

// leadingZero matches a number that Go takes for an octal one: port 04222 would be 2194.
var leadingZero = regexp.MustCompile(`^[+-]?0[0-9_]+$`)

// parse sets a field to the value that a text stands for. The error says how to write one.
func parse(field reflect.Value, text string) error {
	switch to := field.Addr().Interface().(type) {
	case *string:
		*to = text
	case *logLevel:
		if (*slog.Level)(to).UnmarshalText([]byte(text)) != nil {
			return errors.New("debug, info, warn or error")
		}
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return errors.New("a time such as 500ms, 5s or 1m")
		}
		*to = d
	default: // an integer
		n, err := strconv.ParseInt(text, 0, field.Type().Bits())
		switch {
		case leadingZero.MatchString(text):
			return errors.New("a whole number without a leading zero")
		case err != nil:
			return errors.New("a whole number without a unit, at most 9223372036854775807")
		}
		field.SetInt(n)
	}
	return nil
}

// testVariables is the prefix of variables that only this project's tests read.
const testVariables = "PQ_TEST_"

// unknownVariables returns an error for each PQ_ variable that does not exist. It is most
// likely a typo, and ignoring it would silently leave a default in force.
func unknownVariables(environ []string) (problems []error) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "PQ_") || strings.HasPrefix(name, testVariables) || isServiceLink(name, value) {
			continue
		}
		if nearest := nearestVariable(name); nearest != name {
			problems = append(problems, fmt.Errorf("%s is not a variable of pqbridge: did you mean %s?", name, nearest))
		}
	}
	return problems
}

func nearestVariable(name string) string {
	return slices.MinFunc(variables(), func(a, b variable) int {
		return spelling.Distance(name, a.name) - spelling.Distance(name, b.name)
	}).name
}
