package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// loadConfig reads the configuration from the environment. The error joins all problems: unknown
// variables, values that cannot be parsed, and what validate finds.
func loadConfig(dev bool) (*config, error) {
	problems := unknownVariables(os.Environ())
	c := defaultConfig()

	for {
		err := envconfig.Process("", c)
		var wrong *envconfig.ParseError
		if !errors.As(err, &wrong) {
			problems = append(problems, err)
			break
		}

		problems = append(problems, fmt.Errorf("%s is %q: want %s",
			wrong.KeyName, wrong.Value, wanted(wrong.TypeName)))

		// envconfig stops at the first value that it cannot parse. Hide that variable to get to the
		// others; validate then checks its default.
		defer hide(wrong.KeyName)()
	}

	c.NATS.url, c.Leaf.url = c.NATSURL, c.LeafURL
	problems = append(problems, leadingZeros(), c.validate(), validateDev(dev))
	return c, errors.Join(problems...)
}

// hide removes a variable from the environment until restore is called.
func hide(name string) (restore func()) {
	value := os.Getenv(name)
	_ = os.Unsetenv(name) // fails only for names that no variable can have
	return func() { _ = os.Setenv(name, value) }
}

// wanted says how to write a value of a type. Strings are not among them: any text is one.
func wanted(typeName string) string {
	switch typeName {
	case "time.Duration":
		return "a time such as 500ms, 5s or 1m"
	case "main.logLevel":
		return "debug, info, warn or error"
	default:
		return "a whole number without a unit, at most 9223372036854775807"
	}
}

// leadingZero matches a number that Go reads as octal.
var leadingZero = regexp.MustCompile(`^[+-]?0[0-9_]+$`)

// leadingZeros returns an error for each number with a leading zero: envconfig would take port
// 04222 for 2194.
func leadingZeros() error {
	var problems []error
	for _, v := range variables() {
		_, err := strconv.Atoi(v.text())
		if text := os.Getenv(v.name); err == nil && leadingZero.MatchString(text) {
			const want = "want a whole number without a leading zero"
			problems = append(problems, fmt.Errorf("%s is %q: %s", v.name, text, want))
		}
	}
	return errors.Join(problems...)
}

// testVariables is the prefix of variables that only this project's tests read.
const testVariables = "PQ_TEST_"

// unknownVariables returns an error for each PQ_ variable that does not exist. It is most likely a
// typo, and ignoring it would silently leave a default in force.
func unknownVariables(environ []string) (problems []error) {
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "PQ_") || strings.HasPrefix(name, testVariables) {
			continue
		}

		if slices.ContainsFunc(variables(), func(v variable) bool { return v.name == name }) {
			continue
		}

		problem := fmt.Errorf("%s is not a variable of pqbridge: pqbridge -help lists them", name)
		if serviceLink.MatchString(name) {
			problem = fmt.Errorf("%w. Kubernetes sets such a variable for a Service "+
				"whose name begins with pq, unless the pod has enableServiceLinks: false", problem)
		}
		problems = append(problems, problem)
	}
	return problems
}

// serviceLink matches the variables that Kubernetes sets in pods for a Service whose name is or
// begins with pq.
var serviceLink = regexp.MustCompile(`^PQ_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|` +
	`PORT(_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)?)$`)
