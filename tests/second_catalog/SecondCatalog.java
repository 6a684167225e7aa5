import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;

/** A second, named catalog of Delta tables, beside Spark's own; its schemas are the session's. */
public class SecondCatalog extends DeltaCatalog {
    public SecondCatalog() {
        SparkSession session = (SparkSession) SparkSession.active();
        setDelegateCatalog(new V2SessionCatalog(session.sessionState().catalog()));
    }

    @Override
    public String name() {
        return "second-one";
    }
}
