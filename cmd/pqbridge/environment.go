package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kelseyhightower/envconfig"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
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
		if os.Getenv("KUBERNETES_SERVICE_HOST") != "" { // this is a pod
			problem = fmt.Errorf("%w. Kubernetes sets such variables for a Service "+
				"whose name begins with pq, unless the pod has enableServiceLinks: false", problem)
		}
		problems = append(problems, problem)
	}
	return problems
}

// maxPrefixLength keeps subjects within what NATS servers take by default, and keys within what
// FoundationDB takes.
const maxPrefixLength = 1024

// validate returns all problems of the values, joined. checkFiles checks the files.
func (c *config) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}

	oneOf := func(name, value, a, b string) {
		check(value == a || value == b, "%s is %q: want %s or %s", name, value, a, b)
	}

	oneOf("PQ_STORE", c.Store, storeEmbedded, storeFDB)
	oneOf("PQ_VALUE_FORMAT", c.ValueFormat, "raw", "tuple")
	oneOf("PQ_LOG_FORMAT", c.LogFormat, "text", "json")
	check(c.NATSURL != "", "PQ_NATS_URL is empty: want the URL of a NATS server")
	problems = append(problems, c.NATS.validate(), c.Leaf.validate())
	check(c.LeafURL != "" || c.Leaf == access{prefix: leafPrefix},
		"PQ_JETSTREAM_LEAF_URL is empty, and other variables of %s* are set: want it too, or none",
		leafPrefix)
	check(c.QueueGroup != "", "PQ_QUEUE_GROUP is empty: leave it unset for the default")
	check(c.DataDir != "" || c.Store != storeEmbedded,
		"PQ_DATA_DIR is empty: want the folder of the embedded store")
	check(c.HTTPAddr == httpOff || isHostPort(c.HTTPAddr),
		"PQ_HTTP_ADDR is %q: want host:port or %s", c.HTTPAddr, httpOff)
	check(net.ParseIP(c.DevNATSHost) != nil,
		"PQ_DEV_NATS_HOST is %q: want an IP address such as 127.0.0.1 or 0.0.0.0", c.DevNATSHost)
	check(c.DevNATSPort >= 0 && c.DevNATSPort <= 65535,
		"PQ_DEV_NATS_PORT is %d: want 0 to 65535", c.DevNATSPort)

	for _, text := range []struct{ name, value string }{
		{"PQ_KEY_PREFIX", c.KeyPrefix},
		{"PQ_FIFO_KEY_PREFIX", c.FIFOKeyPrefix},
		{"PQ_DATA_DIR", c.DataDir},
	} {
		check(text.value == "" || strings.TrimSpace(text.value) != "",
			"%s is blank: want a value, or leave it unset", text.name)
	}

	for _, prefix := range []struct{ name, value string }{
		{"PQ_SUBJECT_PREFIX", c.SubjectPrefix},
		{"PQ_FIFO_PREFIX", c.FIFOPrefix},
		{"PQ_KEY_PREFIX", c.KeyPrefix},
		{"PQ_FIFO_KEY_PREFIX", c.FIFOKeyPrefix},
	} {
		check(len(prefix.value) <= maxPrefixLength, "%s has %d bytes: want at most %d",
			prefix.name, len(prefix.value), maxPrefixLength)
	}

	_, err := subjects.New(c.SubjectPrefix, c.FIFOPrefix)
	check(err == nil, "PQ_SUBJECT_PREFIX and PQ_FIFO_PREFIX: %w", err)
	check(c.LeafURL == "" || c.prefixesAreDomains(),
		"PQ_SUBJECT_PREFIX or PQ_FIFO_PREFIX has a dot: "+
			"with PQ_JETSTREAM_LEAF_URL they name JetStream domains, which have none")
	_, err = c.keyspace()
	problems = append(problems, c.validateZeros(), err, c.validateOptions())
	return errors.Join(problems...)
}

// prefixesAreDomains reports whether the subject prefixes can be JetStream domains, which have no
// dots.
func (c *config) prefixesAreDomains() bool {
	return !strings.Contains(c.SubjectPrefix+c.FIFOPrefix, ".")
}

// isHostPort reports whether addr is a host, which may be empty, and a port.
func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" || strings.ContainsAny(host, " \t\r\n/") {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}

// validateZeros returns an error for each variable that is 0. To the packages below that means
// their default, but not to the person who sets it.
func (c *config) validateZeros() error {
	var problems []error
	defaults := variables()
	for i, v := range c.variables() {
		if v.option != "" && v.value.CanInt() && v.value.IsZero() && !defaults[i].value.IsZero() {
			problem := fmt.Errorf("%s is 0: leave it unset for the default", v.name)
			problems = append(problems, problem)
		}
	}
	return errors.Join(problems...)
}

// validateOptions returns the problems that the packages below have with their values.
func (c *config) validateOptions() error {
	var problems []error
	all := errors.Join(
		c.bridgeOptions().Validate(), c.pebbleOptions(nil).Validate(), c.fdbOptions().Validate())
	for _, err := range unjoined(all) {
		if wrong, ok := errors.AsType[*kv.OptionError](err); ok && notConfigured[optionOf(wrong)] {
			continue
		}
		problems = append(problems, err)
	}
	return inVariables(errors.Join(problems...))
}

// notConfigured are the required options that serve fills in later.
var notConfigured = map[string]bool{
	"bridge.DB": true, "bridge.Keyspace": true, "bridge.Grammar": true,
}

func optionOf(err *kv.OptionError) string { return err.Package + "." + err.Field }

// inVariables returns err with options replaced by the names of their variables.
func inVariables(err error) error {
	var all []error
	for _, err := range unjoined(err) {
		if wrong, ok := errors.AsType[*kv.OptionError](err); ok {
			for _, v := range variables() {
				if v.option == optionOf(wrong) {
					err = fmt.Errorf("%s is %v: want %s", v.name, wrong.Value, wrong.Want)
				}
			}
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// unjoined returns the errors that errors.Join joined, or err alone.
func unjoined(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, unjoined(err)...)
	}
	return all
}

// validateDev returns an error for each variable about the client connection to NATS, if -dev
// starts a server of its own. The leaf node connection may lead elsewhere.
func validateDev(dev bool) error {
	if !dev {
		return nil
	}

	var problems []error
	for _, v := range variables() {
		if _, set := os.LookupEnv(v.name); set && strings.HasPrefix(v.name, natsPrefix) {
			const why = "which starts a NATS server of its own: unset it, or leave out -dev"
			problems = append(problems, fmt.Errorf("%s has no use with -dev, %s", v.name, why))
		}
	}
	return errors.Join(problems...)
}
