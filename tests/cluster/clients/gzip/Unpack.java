import java.nio.file.Files;
import java.nio.file.Path;
import java.util.zip.GZIPInputStream;

/** Writes the text of a gzip file. */
final class Unpack {
    public static void main(String[] arguments) throws Exception {
        try (var text = new GZIPInputStream(Files.newInputStream(Path.of(arguments[0])))) {
            text.transferTo(System.out);
        }
        System.out.flush();
    }
}
