package dev.listless.rig;

/** The settings of the program, from its arguments. */
record Settings(String namespace, int threads, long periodMillis, long seconds, int writeEvery) {
  static Settings parse(String[] arguments) {
    if (arguments.length != 5) {
      throw new IllegalArgumentException(
          "usage: NAMESPACE THREADS PERIOD_MILLIS SECONDS WRITE_EVERY_ROUNDS");
    }
    return new Settings(
        arguments[0],
        Integer.parseInt(arguments[1]),
        Long.parseLong(arguments[2]),
        Long.parseLong(arguments[3]),
        Integer.parseInt(arguments[4]));
  }
}
