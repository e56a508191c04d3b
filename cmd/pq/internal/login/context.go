package login

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// stored is a context of the nats command line tool: a file that says how to reach a server and how
// to log in. docs/decisions says why pq reads it itself.
type stored struct {
	name string

	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	CA          string `json:"ca"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	InboxPrefix string `json:"inbox_prefix"`
	TLSFirst    bool   `json:"tls_first"`

	// pq refuses contexts with these.
	NSC          string `json:"nsc"`
	SocksProxy   string `json:"socks_proxy"`
	WinCertStore string `json:"windows_cert_store"`
	UserJWT      string `json:"user_jwt"`
}

// configDir is where the nats tool keeps contexts.
func configDir() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "nats"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".config", "nats"), err
}

// loadContext reads the named context, or the selected one of the nats tool. It returns nil if the
// name is "" and none is selected.
func loadContext(name string) (*stored, error) {
	dir, err := configDir()
	if err != nil && name == "" {
		return nil, nil // without a home nothing is selected
	} else if err != nil {
		return nil, fmt.Errorf("context %s: %w", name, err)
	}

	if name == "" {
		selected, err := os.ReadFile(filepath.Join(dir, "context.txt"))
		name = strings.TrimSpace(string(selected))
		if err != nil || name == "" {
			return nil, nil
		}
	}

	if strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
		return nil, fmt.Errorf("context %q: that is no name of a context", name)
	}

	file := filepath.Join(dir, "context", name+".json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no context %s, because there is no file %s: select "+
			"another with nats context select, or name one with --context", name, file)
	}

	c := &stored{name: name}
	if err == nil && json.Unmarshal(text, c) != nil {
		err = fmt.Errorf("the file %s is not a JSON object of strings: "+
			"save the context again with nats context save", file)
	}

	if err = cmp.Or(err, c.check()); err != nil {
		return nil, fmt.Errorf("context %s: %w", name, err)
	}

	for _, path := range []*string{&c.Creds, &c.NKey, &c.CA, &c.Cert, &c.Key} {
		*path = expandPath(*path)
	}

	return c, nil
}

const unknownField = "pq does not support %s: use a context without it, " +
	"such as one with the creds that nsc generate creds prints"

// check returns what pq cannot do.
func (c *stored) check() error {
	for field, value := range map[string]string{
		"nsc": c.NSC, "socks_proxy": c.SocksProxy, "windows_cert_store": c.WinCertStore,
	} {
		if value != "" {
			return fmt.Errorf(unknownField, field)
		}
	}

	return nil
}

// checkLogin returns how pq cannot log in.
func (c *stored) checkLogin() error {
	if c.UserJWT != "" {
		return fmt.Errorf(unknownField, "user_jwt")
	}

	secrets := []string{c.Password, c.Token, c.Creds, c.NKey}
	if slices.ContainsFunc(secrets, isReference) {
		return errors.New("pq does not follow references such as env: or file: to a secret: " +
			"use a context with the secret or the name of its file")
	}

	return nil
}

// expandPath replaces a ~ in front, and variables, as the nats tool does. It leaves references
// alone.
func expandPath(path string) string {
	path = strings.TrimPrefix(path, "file://")
	rest, found := strings.CutPrefix(path, "~")
	if found && (rest == "" || os.IsPathSeparator(rest[0])) {
		if home, err := os.UserHomeDir(); err == nil {
			path = home + rest
		}
	}
	return os.ExpandEnv(path)
}

// isReference reports whether a text refers to a secret elsewhere, as the nats tool has it.
func isReference(text string) bool {
	scheme, _, found := strings.Cut(text, ":")
	known := []string{"file", "env", "data", "op", "nsc"}
	return found && slices.Contains(known, strings.ToLower(scheme))
}

// useContext takes from a context what no flag and no variable says. If any of them says who logs
// in, the context does not.
func (c *Connection) useContext(set *pflag.FlagSet) error {
	from, err := loadContext(c.context)
	if err != nil || from == nil {
		return err
	}

	take := func(flag string, field *string, value string) {
		if !set.Changed(flag) && value != "" {
			*field = value
		}
	}

	take("server", &c.Server, from.URL)
	take("tlsca", &c.tlsCA, from.CA)
	if !set.Changed("tlscert") && !set.Changed("tlskey") {
		c.tlsCert, c.tlsKey = from.Cert, from.Key
	}

	take("inbox-prefix", &c.inboxPrefix, from.InboxPrefix)
	c.tlsFirst = from.TLSFirst

	logins := []string{"creds", "nkey", "user", "password", "token"}
	if slices.ContainsFunc(logins, set.Changed) {
		return nil
	}

	if err := from.checkLogin(); err != nil {
		return fmt.Errorf("context %s: %w", from.name, err)
	}

	// The login is the first that the context has, as for the nats tool, and the token.
	c.token = from.Token
	switch {
	case from.User != "":
		c.user, c.password, c.userOnly = from.User, from.Password, from.Password == ""
	case from.Creds != "":
		c.creds = from.Creds
	default:
		c.nkey = from.NKey
	}

	return nil
}
